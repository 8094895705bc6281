// Images a second from a folder to batches, and the memory that takes:
//   data_images FOLDER [MEMORY [THREADS [EPOCHS [SIZE [shuffle]]]]]
// Then the bare rate of the same decoder and resize, without a pipeline, on as many threads, and
// that of libjpeg decoding to RGB at full size with a resize behind it, from memory. One line of
// JSON. jpeglib.h wants FILE to be known.
#include <cstdio>

#include <jpeglib.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "data/image/image.h"
#include "data/image/resize.h"

using namespace pl;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// VmHWM or VmRSS of this process, in bytes.
Bytes status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  return 0;
}

struct Rate {
  double images_per_s = 0, cpu_ms = 1e9;  // per image, of all threads
  void keep_best(const Rate& other) {
    images_per_s = std::max(images_per_s, other.images_per_s);
    cpu_ms = std::min(cpu_ms, other.cpu_ms);
  }
};

// Calls work() on so many threads; `count` images are done then.
Rate rate_of(int64_t count, int threads, const std::function<void()>& work) {
  const auto start = Clock::now();
  const std::clock_t cpu_start = std::clock();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  const auto images = static_cast<double>(count);
  // On a busy machine the only figure that stays is CPU time.
  return {images / seconds_since(start),
          static_cast<double>(std::clock() - cpu_start) * 1e3 / CLOCKS_PER_SEC / images};
}

Rate bare_rate(const ImageList& list, const DecodeOptions& options, int threads) {
  std::atomic<int64_t> next{0};
  return rate_of(list.size(), threads, [&] {
    std::vector<uint8_t> out(static_cast<size_t>(options.size.height * options.size.width * 3));
    for (int64_t i; (i = next++) < list.size();) decode_image(list.path(i), options, out.data());
  });
}

void library_decode(const std::string& bytes, ImageSize size, uint8_t* to) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_EXT_RGBX;
  jpeg_start_decompress(&info);
  RowResizer resizer({info.output_height, info.output_width}, size, true, to);
  std::vector<uint8_t> row(size_t{4} * info.output_width);
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[1] = {row.data()};
    jpeg_read_scanlines(&info, rows, 1);
    resizer.add_row(row.data());
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

Rate library_rate(const std::vector<std::string>& files, ImageSize size, int threads) {
  std::atomic<size_t> next{0};
  return rate_of(static_cast<int64_t>(files.size()), threads, [&] {
    std::vector<uint8_t> out(static_cast<size_t>(size.height * size.width * 3));
    for (size_t i; (i = next++) < files.size();) library_decode(files[i], size, out.data());
  });
}

int run(int argc, char** argv) {
  const std::string folder = argv[1], memory = argc > 2 ? argv[2] : "64MiB";
  const int threads = argc > 3 ? std::atoi(argv[3]) : 2;
  const int epochs = argc > 4 ? std::atoi(argv[4]) : 3;
  const int64_t size = argc > 5 ? std::atoll(argv[5]) : 224;
  const bool shuffled = argc > 6;
  Dataset data = image_dataset_from_directory(
      folder, {.batch_size = 0, .image_size = {size, size}, .shuffle = shuffled});
  data = data.batch(32).prefetch(AUTOTUNE).with_options({.memory = memory, .threads = threads});
  Rate ours, bare, library;
  const DecodeOptions decode{.size = {size, size}};
  const ImageList list = list_images(folder);
  const Bytes before = status("VmRSS");
  Bytes after = 0;
  {
    DatasetIterator iterator = data.iterate();
    for (int epoch = 0; epoch < epochs; ++epoch) {
      iterator.start(static_cast<uint64_t>(epoch));
      ours.keep_best(rate_of(list.size(), 1, [&] {
        for (Element batch; iterator.next(batch);) {
        }
      }));
    }
    after = status("VmHWM");
    std::fprintf(stderr, "%s", iterator.report().text().c_str());
  }
  std::vector<std::string> files;  // the first of them, to be held
  for (int64_t i = 0; i < std::min<int64_t>(list.size(), 500); ++i)
    files.push_back(read_text_file(list.path(i), Bytes{1} << 26));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    bare.keep_best(bare_rate(list, decode, threads));
    library.keep_best(library_rate(files, decode.size, threads));
  }
  std::printf(
      "{\"images\": %lld, \"memory\": \"%s\", \"threads\": %d, \"images_per_s\": %.1f, "
      "\"bare_images_per_s\": %.1f, \"library_images_per_s\": %.1f, \"cpu_ms\": %.3f, "
      "\"bare_cpu_ms\": %.3f, \"library_cpu_ms\": %.3f, \"growth_mib\": %.1f}\n",
      static_cast<long long>(list.size()), memory.c_str(), threads, ours.images_per_s,
      bare.images_per_s, library.images_per_s, ours.cpu_ms, bare.cpu_ms, library.cpu_ms,
      static_cast<double>(after - before) / (1 << 20));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: data_images FOLDER [MEMORY [THREADS [EPOCHS [SIZE [shuffle]]]]]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

// Images a second from a folder to batches, and the memory that takes:
//   data_images FOLDER [MEMORY [THREADS [EPOCHS [SIZE [shuffle]]]]]
// Then the bare rate of the same decoder and resize, without a pipeline, on as many threads.
// One line of JSON.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "data/image/image.h"

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

double bare_rate(const ImageList& list, const DecodeOptions& options, int threads) {
  std::atomic<int64_t> next{0};
  const auto start = Clock::now();
  const auto work = [&] {
    std::vector<uint8_t> out(static_cast<size_t>(options.size.height * options.size.width * 3));
    for (int64_t i; (i = next++) < list.size();) decode_image(list.path(i), options, out.data());
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return static_cast<double>(list.size()) / seconds_since(start);
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
  double best = 0, bare = 0, cpu_ms = 1e9;
  const DecodeOptions decode{.size = {size, size}};
  const ImageList list = list_images(folder);
  const Bytes before = status("VmRSS");
  Bytes after = 0;
  {
    DatasetIterator iterator = data.iterate();
    for (int epoch = 0; epoch < epochs; ++epoch) {
      iterator.start(static_cast<uint64_t>(epoch));
      const auto start = Clock::now();
      const std::clock_t cpu_start = std::clock();
      int64_t count = 0;
      for (Element batch; iterator.next(batch);) count += batch[0].shape()[0];
      best = std::max(best, static_cast<double>(count) / seconds_since(start));
      // On a busy machine the only figure that stays: CPU time of all threads.
      cpu_ms = std::min(cpu_ms, static_cast<double>(std::clock() - cpu_start) * 1e3 /
                                    CLOCKS_PER_SEC / static_cast<double>(count));
    }
    after = status("VmHWM");
    std::fprintf(stderr, "%s", iterator.report().text().c_str());
  }
  for (int epoch = 0; epoch < epochs; ++epoch)
    bare = std::max(bare, bare_rate(list, decode, threads));
  std::printf(
      "{\"images\": %lld, \"memory\": \"%s\", \"threads\": %d, \"images_per_s\": %.1f, "
      "\"bare_images_per_s\": %.1f, \"share_of_bare\": %.3f, \"cpu_ms_per_image\": %.3f, "
      "\"growth_mib\": %.1f}\n",
      static_cast<long long>(list.size()), memory.c_str(), threads, best, bare, best / bare, cpu_ms,
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

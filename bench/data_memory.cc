// What pipelines hold, seen from outside. One line of JSON.
//   data_memory images FOLDER MEMORY PARALLEL SHUFFLE PREFETCH [limited] [slow]
//     a folder to batches of 32 of 224 x 224; -1 is AUTOTUNE; SHUFFLE: its buffer, 0 for none,
//     asked for behind the decoding. "limited": with RLIMIT_DATA of what is used before, MEMORY and
//     3 MiB; "slow": a consumer that waits, so that all that may be made ahead is.
//   data_memory shuffle COUNT      so many int64 in memory, shuffled with a buffer of all of them
//   data_memory epochs FOLDER COUNT  resident growth between epoch 20 and epoch 20 + COUNT
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "data/image/image.h"

using namespace pl;

namespace {

// VmHWM, VmRSS, RssAnon or VmData of this process, in bytes.
Bytes status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  return 0;
}

double mib(Bytes bytes) { return static_cast<double>(bytes) / (1 << 20); }

Dataset image_batches(const std::string& folder, int64_t parallel, int64_t shuffle) {
  Dataset images = image_dataset_from_directory(folder, {.batch_size = 0,
                                                         .image_size = {224, 224},
                                                         .shuffle = false,
                                                         .num_parallel_calls = parallel});
  if (shuffle > 0) images = images.shuffle(shuffle);
  return images.batch(32);
}

int64_t count_rows(DatasetIterator& iterator, bool slow = false) {
  int64_t rows = 0;
  for (Element batch; iterator.next(batch);) {
    if (slow && rows == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
    rows += batch[0].shape()[0];
  }
  return rows;
}

int run_images(int argc, char** argv) {
  if (argc < 7) return 2;
  const ByteCount memory(argv[3]);
  const int64_t parallel = std::atoll(argv[4]), shuffle = std::atoll(argv[5]),
                prefetch = std::atoll(argv[6]);
  bool limited = false, slow = false;
  for (int i = 7; i < argc; ++i) {
    limited = limited || std::strcmp(argv[i], "limited") == 0;
    slow = slow || std::strcmp(argv[i], "slow") == 0;
  }
  const Dataset data = image_batches(argv[2], parallel, shuffle)
                           .prefetch(prefetch)
                           .with_options({.memory = memory, .threads = 2});
  const Bytes before = status("VmRSS");
  if (limited) {
    const auto most = static_cast<rlim_t>(status("VmData") + memory.value() + 3 * kMiB);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_DATA, &limit);
  }
  DatasetIterator iterator = data.iterate();
  const auto start = std::chrono::steady_clock::now();
  const int64_t rows = count_rows(iterator, slow);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const PipelineReport report = iterator.report();
  std::printf(
      "{\"parallel\": %lld, \"shuffle\": %lld, \"prefetch\": %lld, \"limited\": %s, \"images\": "
      "%lld, \"images_per_s\": %.1f, \"growth_mib\": %.1f, \"payload_mib\": %.1f}\n",
      static_cast<long long>(parallel), static_cast<long long>(shuffle),
      static_cast<long long>(prefetch), limited ? "true" : "false", static_cast<long long>(rows),
      static_cast<double>(rows) / seconds, mib(status("VmHWM") - before),
      mib(report.ledger.payload_peak));
  return 0;
}

int run_shuffle(int64_t count) {
  Tensor numbers(Meta{Dtype::int64, Shape{count}});
  for (int64_t i = 0; i < count; ++i) numbers.data_as<int64_t>()[i] = i;
  const Bytes before = status("VmRSS"), anonymous = status("RssAnon");
  DatasetIterator iterator = Dataset::from_tensor_slices({numbers}).shuffle(count).iterate();
  int64_t sum = 0, got = 0;
  Element element;
  for (; got < std::min<int64_t>(count, 2'000'000) && iterator.next(element); ++got)
    sum += *element[0].data_as<int64_t>();
  // The rest of the growth is pages of code that had not run before.
  std::printf(
      "{\"numbers\": %lld, \"read\": %lld, \"mean\": %.0f, \"growth_mib\": %.2f, "
      "\"anonymous_mib\": %.2f}\n",
      static_cast<long long>(count), static_cast<long long>(got),
      static_cast<double>(sum) / static_cast<double>(got), mib(status("VmHWM") - before),
      mib(status("RssAnon") - anonymous));
  return 0;
}

int run_epochs(const std::string& folder, uint64_t count) {
  DatasetIterator iterator = image_batches(folder, AUTOTUNE, 1000)
                                 .prefetch(AUTOTUNE)
                                 .with_options({.memory = "64MiB", .threads = 2})
                                 .iterate();
  Bytes before = 0;
  for (uint64_t epoch = 0; epoch < 20 + count; ++epoch) {
    if (epoch == 20) before = status("VmRSS");
    iterator.start(epoch);
    count_rows(iterator);
  }
  std::printf("{\"epochs\": %llu, \"growth_mib\": %.2f}\n", static_cast<unsigned long long>(count),
              mib(status("VmRSS") - before));
  return 0;
}

int run(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  if (kind == "images") return run_images(argc, argv);
  if (kind == "shuffle") return run_shuffle(std::atoll(argv[2]));
  if (kind == "epochs" && argc > 3) return run_epochs(argv[2], std::strtoull(argv[3], nullptr, 10));
  std::fprintf(stderr, "usage: data_memory images|shuffle|epochs ...\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

// How computing and decoding share the cores: the time of a step of mnist-cnn, alone and beside a
// thread that decodes images all the time.
//   data_share FOLDER [THREADS [STEPS [ROUNDS]]]
// With T threads that compute and one that decodes on T cores, a fair share of the cores is
// T / (T + 1) of them: steps of (T + 1) / T times the time alone. One line of JSON.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "plimsoll.h"

using namespace pl;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Decodes in one thread of a pipeline, again and again.
class Decoder {
 public:
  explicit Decoder(const std::string& folder)
      : thread_([this, folder] {
          DatasetIterator images =
              image_dataset_from_directory(
                  folder, {.batch_size = 8, .image_size = {224, 224}, .num_parallel_calls = 1})
                  .repeat()
                  .prefetch(2)
                  .with_options({.memory = "32MiB", .threads = 1})
                  .iterate();
          for (Element batch; !stop_ && images.next(batch);) decoded_ += batch[0].shape()[0];
        }) {}
  ~Decoder() {
    stop_ = true;
    thread_.join();
  }
  int64_t decoded() const { return decoded_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> decoded_{0};
  std::thread thread_;
};

int run(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const int64_t steps = argc > 3 ? std::atoll(argv[3]) : 20;
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  constexpr int64_t kBatch = 64;
  Sequential model(Shape{28, 28, 1},
                   {Conv2D(32, 3, {.activation = "relu"}), MaxPooling2D(2),
                    Conv2D(64, 3, {.activation = "relu"}), MaxPooling2D(2), Flatten(),
                    Dense(128, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  Tensor x({Dtype::float32, {kBatch * steps, 28, 28, 1}}), y({Dtype::int32, {kBatch * steps}});
  for (int64_t i = 0; i < x.shape().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(i * 7919 % 256) / 255;
  for (int64_t i = 0; i < kBatch * steps; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 10);
  const auto epoch = [&] {
    model.fit(x, y, {.batch_size = kBatch, .verbose = 0, .threads = threads});
  };
  epoch();
  double alone = 1e9, beside = 1e9, rate = 0;
  for (int round = 0; round < rounds; ++round) {
    alone = std::min(alone, seconds_of(epoch));
    Decoder decoder(argv[1]);
    while (decoder.decoded() == 0) std::this_thread::yield();
    const int64_t before = decoder.decoded();
    const double taken = seconds_of(epoch);
    rate = std::max(rate, static_cast<double>(decoder.decoded() - before) / taken);
    beside = std::min(beside, taken);
  }
  const double fair = (threads + 1.0) / threads;
  std::printf(
      "{\"threads\": %d, \"step_ms_alone\": %.2f, \"step_ms_beside\": %.2f, \"ratio\": %.3f, "
      "\"fair\": %.3f, \"images_per_s_beside\": %.0f}\n",
      threads, alone * 1e3 / static_cast<double>(steps), beside * 1e3 / static_cast<double>(steps),
      beside / alone, fair, rate);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: data_share FOLDER [THREADS [STEPS [ROUNDS]]]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}

// A data set in memory, shuffled and batched: three arms of a spiral.
//
//   in_memory [seed]
//
// As in tf.data: from_tensor_slices(...).shuffle(1920).batch(32). The shuffle is a keyed
// permutation whatever its buffer: perfect, new in each epoch, and of no bytes.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace pl;
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    constexpr int64_t kSamples = 2400, kArms = 3;
    Tensor x({Dtype::float32, {kSamples, 2}}), y({Dtype::int32, {kSamples}});
    for (int64_t i = 0; i < kSamples; ++i) {
      const int64_t arm = i % kArms;
      const double along = std::fmod(0.6180339887 * static_cast<double>(i), 1.0);
      const double noise = std::fmod(0.7548776662 * static_cast<double>(i), 1.0) - 0.5;
      const double angle = 6 * along + 2.0943951 * static_cast<double>(arm) + 0.6 * noise;
      x.data_as<float>()[2 * i] = static_cast<float>(along * std::cos(angle));
      x.data_as<float>()[2 * i + 1] = static_cast<float>(along * std::sin(angle));
      y.data_as<int32_t>()[i] = static_cast<int32_t>(arm);
    }

    Sequential model({Dense(64, {.activation = "relu"}), Dense(64, {.activation = "relu"}),
                      Dense(kArms, {.activation = "softmax"})});
    model.compile({.optimizer = Adam({.learning_rate = 0.005}),
                   .loss = "sparse_categorical_crossentropy",
                   .metrics = {"accuracy"}});
    // The last fifth of the samples is for validation.
    constexpr int64_t kTrained = kSamples * 4 / 5;
    const Dataset samples = Dataset::from_tensor_slices({x, y});
    const Dataset train = samples.take(kTrained).shuffle(kTrained, {.seed = seed}).batch(32);
    const Dataset validation = samples.skip(kTrained).batch(32);
    const History history = model.fit(train, {.epochs = 40,
                                              .verbose = 0,
                                              .validation_data = validation,
                                              .memory = "64MiB",
                                              .seed = seed,
                                              .threads = 1});
    for (const int epoch : {1, 10, 40})
      std::printf("epoch %d: loss %.4f\n", epoch,
                  history.history.at("loss")[static_cast<size_t>(epoch - 1)]);
    std::printf("validation accuracy %.4f\n", history.history.at("val_accuracy").back());
  } catch (const Error& error) {
    std::fprintf(stderr, "in_memory: %s\n", error.what());
    return error.exit_code();
  }
}

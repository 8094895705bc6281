// A generator as input: samples that a function makes when they are needed.
//
//   generator [seed]
//
// A coroutine yields them, with a signature, as tf.data's from_generator has it; nothing is stored
// but a buffer of 512 to shuffle in. A training run that is broken off goes on from the very sample
// it had come to: the generator is run again up to there.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace pl;

namespace {

constexpr int64_t kLength = 64, kClasses = 4, kCount = 2048;

// A wave of 1 to 4 hertz, its phase and noise from the sample's number.
Element wave(int64_t index) {
  const int64_t label = index % kClasses;
  Tensor x({Dtype::float32, {kLength, 1}}), y({Dtype::int32, {}});
  uint32_t noise = static_cast<uint32_t>(index) * 2654435761u;
  for (int64_t t = 0; t < kLength; ++t) {
    noise = noise * 1664525 + 1013904223;
    const double turns = static_cast<double>((label + 1) * t) / kLength;
    x.data_as<float>()[t] =
        static_cast<float>(std::sin(6.283185307 * (turns + 0.618 * static_cast<double>(index)))) +
        3 * (static_cast<float>(noise >> 8) / (1 << 24) - 0.5f);
  }
  *y.data_as<int32_t>() = static_cast<int32_t>(label);
  return {x, y};
}

Generator<Element> waves() {
  for (int64_t index = 0; index < kCount; ++index) co_yield wave(index);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const ElementSpec signature{
        {{"x", Dtype::float32, Shape{kLength, 1}}, {"y", Dtype::int32, Shape()}}};
    // How many a function yields is not known before; fit plans all batches first.
    const Dataset data = Dataset::from_generator(waves, signature)
                             .assert_cardinality(kCount)
                             .shuffle(512, {.seed = seed})
                             .batch(64)
                             .prefetch(AUTOTUNE)
                             .with_options({.memory = "2MiB"});

    Sequential model(Shape{kLength, 1},
                     {Conv1D(16, 9, {.strides = 2, .activation = "relu"}),
                      Conv1D(16, 9, {.strides = 2, .activation = "relu"}), GlobalAveragePooling1D(),
                      Dense(kClasses, {.activation = "softmax"})});
    model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                   .loss = "sparse_categorical_crossentropy",
                   .metrics = {"accuracy"}});
    model.fit(data, {.epochs = 8, .verbose = 2, .memory = "64MiB", .seed = seed, .threads = 1});
    std::printf("accuracy %.4f\n", model.evaluate(data)["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "generator: %s\n", error.what());
    return error.exit_code();
  }
}

// A generator as input: samples that a function makes when they are needed.
//
//   generator [seed]
//
// Like Keras's generators it has a signature and nothing is stored; unlike them it is asked for a
// sample by its number, so that the order is shuffled for free and training can go on after a
// break from the very sample it had come to.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace pl;

namespace {

constexpr int64_t kLength = 64, kClasses = 4;

// A wave of 1 to 4 hertz, its phase and noise from the sample's number.
void wave(int64_t index, std::span<void* const> sample) {
  const int64_t label = index % kClasses;
  if (float* x = static_cast<float*>(sample[0])) {
    uint32_t noise = static_cast<uint32_t>(index) * 2654435761u;
    for (int64_t t = 0; t < kLength; ++t) {
      noise = noise * 1664525 + 1013904223;
      const double turns = static_cast<double>((label + 1) * t) / kLength;
      x[t] =
          static_cast<float>(std::sin(6.283185307 * (turns + 0.618 * static_cast<double>(index)))) +
          3 * (static_cast<float>(noise >> 8) / (1 << 24) - 0.5f);
    }
  }
  if (sample[1]) *static_cast<int32_t*>(sample[1]) = static_cast<int32_t>(label);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const std::vector<Field> signature{
        {"x", {Dtype::float32, {kLength, 1}}, {}, Role::x},
        {"y", {Dtype::int32, {}}, ValueRange{0, kClasses - 1}, Role::y}};
    const auto waves = function_source(signature, 2048, wave);

    Sequential model(Shape{kLength, 1},
                     {Conv1D(16, 9, {.strides = 2, .activation = "relu"}),
                      Conv1D(16, 9, {.strides = 2, .activation = "relu"}), GlobalAveragePooling1D(),
                      Dense(kClasses, {.activation = "softmax"})});
    model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                   .loss = "sparse_categorical_crossentropy",
                   .metrics = {"accuracy"}});
    model.fit(*waves, {.batch_size = 64,
                       .epochs = 8,
                       .memory = "64MiB",
                       .seed = seed,
                       .verbose = 2,
                       .threads = 1});
    std::printf("accuracy %.4f\n", model.evaluate(*waves)["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "generator: %s\n", error.what());
    return error.exit_code();
  }
}

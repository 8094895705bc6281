// Mixed precision: 16-bit activations and products, float32 weights and updates.
//
//   mixed_precision [seed]
//
// One word to compile(). Under mixed_float16 the loss is scaled, as in Keras, so that small
// gradients survive: a step whose gradients overflow is left out and the scale halved. On
// processors only bfloat16 has kernels of its own: float16 is there for its numbers, it saves no
// memory.
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

namespace {

using namespace pl;

// Images of 16 x 16 with bright stripes: how far apart they are is the class.
struct Stripes {
  explicit Stripes(Dim count)
      : x({Dtype::float32, {count, 16, 16, 1}}), y({Dtype::int32, {count}}) {
    uint32_t noise = 1;
    for (Dim i = 0; i < count; ++i) {
      const Dim apart = 2 + i % 4;
      for (Dim at = 0; at < 256; ++at) {
        noise = noise * 1664525 + 1013904223;  // in [0, 2^32)
        const Dim row = at / 16, column = at % 16;
        x.data_as<float>()[i * 256 + at] = ((row + column + i / 4) % apart == 0) +
                                           2.0f * static_cast<float>(noise >> 8) / (1 << 24);
      }
      y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 4);
    }
  }
  Tensor x, y;
};

void train(const char* name, const Policy& policy, const Stripes& data, uint64_t seed) {
  Sequential model(Shape{16, 16, 1},
                   {Conv2D(16, 3, {.activation = "relu"}), Conv2D(16, 3, {.activation = "relu"}),
                    MaxPooling2D(2), Flatten(), Dense(4, {.activation = "softmax"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.005}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .dtype = policy});
  const FitOptions options{.batch_size = 128, .epochs = 8, .verbose = 0, .seed = seed};
  const History history = model.fit(data.x, data.y, options);
  std::printf("%-15s %9s for tensors, loss %.4f, accuracy %.4f\n", name,
              format_bytes(history.planned_arena).c_str(), history.history.at("loss").back(),
              model.evaluate(data.x, data.y)["accuracy"]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const Stripes data(1024);
    train("float32", Dtype::float32, data, seed);
    train("mixed_float16", kMixedFloat16, data, seed);
    train("mixed_bfloat16", kMixedBfloat16, data, seed);
  } catch (const Error& error) {
    std::fprintf(stderr, "mixed_precision: %s\n", error.what());
    return error.exit_code();
  }
}

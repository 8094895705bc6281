// One program on any device: fit() on planned steps, then a step of one's own on values.
//
//   device_cnn [--device cuda]
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <string>

namespace {

using namespace pl;

// Images with a bright spot; the label says in which quarter it is.
struct Spots {
  explicit Spots(Dim count) : x({Dtype::float32, {count, 16, 16, 1}}), y({Dtype::int32, {count}}) {
    for (Dim i = 0; i < count; ++i) {
      const Dim row = i * 7 % 16, column = i * 11 % 16;
      for (Dim p = 0; p < 256; ++p) {
        const double far = std::hypot(p / 16 - row, p % 16 - column);
        x.data_as<float>()[256 * i + p] = static_cast<float>(std::exp(-far));
      }
      y.data_as<int32_t>()[i] = static_cast<int32_t>(row / 8 * 2 + column / 8);
    }
  }
  Tensor x, y;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 2 && std::string(argv[1]) == "--device" ? argv[2] : "cpu";
  try {
    const Spots data(1024);
    Sequential model(Shape{16, 16, 1},
                     {Conv2D(16, 3, {.activation = "relu"}), MaxPooling2D(), Flatten(), Dense(4)});
    const auto loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
    model.compile({.optimizer = Adam({.learning_rate = 0.003}), .loss = loss, .device = device});
    const History history =
        model.fit(data.x, data.y, {.batch_size = 64, .epochs = 4, .verbose = 0});
    std::printf("%s: loss %.4f, then %.4f; planned %s, measured %s\n", device.c_str(),
                history.history.at("loss").front(), history.history.at("loss").back(),
                format_bytes(history.planned_process).c_str(),
                format_bytes(history.measured_process).c_str());

    Runtime runtime({.device_memory = "256MiB"});
    const auto scope = pl::device(device);
    GradientTape tape;
    const Tensor logits = model(data.x, true);
    const Tensor mean = reduce_mean(sparse_softmax_cross_entropy(logits, data.y).loss);
    const std::vector<Variable> weights = model.trainable_variables();
    const Tensors gradients = tape.gradient(mean, weights);
    for (size_t i = 0; i < weights.size(); ++i) weights[i].assign_sub(scale(gradients[i], 0.1));
    std::printf("one step by hand at loss %.4f\n", mean.data_as<float>()[0]);
  } catch (const Error& error) {
    std::fprintf(stderr, "device_cnn: %s\n", error.what());
    return error.exit_code();
  }
}

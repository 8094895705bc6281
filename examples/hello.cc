// The smallest whole program: data made on the spot, a budget, training, and a prediction.
#include "plimsoll.h"

#include <cstdio>

int main() {
  using namespace pl;
  // Points in the unit square; the class says whether they lie inside a circle.
  Tensor x({Dtype::float32, {1024, 2}}), y({Dtype::int32, {1024}});
  for (int i = 0; i < 1024; ++i) {
    const float a = static_cast<float>(i % 32) / 16 - 1, b = static_cast<float>(i / 32) / 16 - 1;
    x.data_as<float>()[2 * i] = a, x.data_as<float>()[2 * i + 1] = b;
    y.data_as<int32_t>()[i] = a * a + b * b < 0.5f;
  }
  Sequential model({Dense(32, {.activation = "relu"}), Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  model.fit(x, y, {.epochs = 10, .memory = "64MiB", .threads = 1});
  std::printf("accuracy %.3f\n", model.evaluate(x, y)["accuracy"]);
}

// Fashion-MNIST within 128 MiB: the plan before training, the accuracy and the measured memory
// after.
//
//   mnist [seed] [samples]
#include "plimsoll.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace pl;
  try {
    const auto all = fashion_mnist_source(Part::train), test = fashion_mnist_source(Part::test);
    const int64_t samples = argc > 2 ? std::min<int64_t>(std::atoll(argv[2]), all->size()) : 60000;
    const auto train = range_source(*all, 0, samples);
    Sequential model(Shape{28, 28, 1},
                     {Conv2D(32, 3, {.activation = "relu"}), MaxPooling2D(2),
                      Conv2D(64, 3, {.activation = "relu"}), MaxPooling2D(2), Flatten(),
                      Dense(64, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
    const FitOptions options{.batch_size = 128,
                             .validation_data = *test,
                             .memory = "128MiB",
                             .seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0,
                             .x_scale = 1.0 / 255};
    std::puts(model.summary({.batch_size = 128}).c_str());
    std::puts(to_text(model.plan(*train, options)).c_str());
    const History history = model.fit(*train, options);
    std::printf("memory: planned %s, measured %s\n", format_bytes(history.planned_process).c_str(),
                format_bytes(history.measured_process).c_str());
    std::printf("test accuracy %.4f\n", model.evaluate(*test, {.batch_size = 128})["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return error.exit_code();
  }
}

// The small convolutional network of every tutorial: layers, summary, compile, fit, evaluate.
//
//   small_cnn [seed] [samples]
//
// The summary has what Keras's has, and besides it what training takes: gradients, the optimiser's
// state and activations, layer by layer, before anything is trained.
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace pl;
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 6000;
    // The first few, to be done in a moment.
    const Dataset train = source_dataset(fashion_mnist_source(Part::train))
                              .take(samples)
                              .shuffle(samples, {.seed = seed})
                              .batch(64)
                              .prefetch(AUTOTUNE)
                              .with_options({.memory = "4MiB"});
    const Dataset test = source_dataset(fashion_mnist_source(Part::test)).batch(64);

    Sequential model;
    model.add(Conv2D(16, 3, {.activation = "relu"}));
    model.add(MaxPooling2D(2));
    model.add(Conv2D(32, 3, {.activation = "relu"}));
    model.add(MaxPooling2D(2));
    model.add(Conv2D(32, 3, {.activation = "relu"}));
    model.add(Flatten());
    model.add(Dense(32, {.activation = "relu"}));
    model.add(Dense(10));
    model.build(Shape{28, 28, 1});
    std::puts(model.summary({.batch_size = 64}).c_str());

    model.compile({.optimizer = "adam",
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
    model.fit(train,
              {.epochs = 5, .verbose = 2, .memory = "64MiB", .seed = seed, .x_scale = 1.0 / 255});
    std::printf("test accuracy %.4f\n", model.evaluate(test)["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "small_cnn: %s\n", error.what());
    return error.exit_code();
  }
}

// Images streamed from disk into a model, in less memory than the images take.
//
//   streaming_images [seed]
//
// Fashion-MNIST's 60,000 training images are 47 MB; the whole process, the model, its training and
// the pipeline that reads them included, gets 32 MiB. The shuffle is perfect and takes no memory, a
// thread of its own reads the next batches, and 2 MiB is all they may hold. open_source also takes
// a folder of IDX files or an .npz; of a folder of JPEGs and PNGs the pipeline would begin with
// image_dataset_from_directory.
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace pl;
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    Sources images = open_source("fashion-mnist");
    const int64_t count = images.train->size();
    const DatasetOptions options{.memory = "2MiB", .threads = 1};
    const Dataset train = source_dataset(std::move(images.train))
                              .shuffle({.seed = seed})
                              .batch(128)
                              .prefetch(AUTOTUNE)
                              .with_options(options);
    const Dataset test =
        source_dataset(std::move(images.test)).batch(128).prefetch(1).with_options(options);
    Sequential model(Shape{28, 28, 1}, {Flatten(), Dense(64, {.activation = "relu"}),
                                        Dense(10, {.activation = "softmax"})});
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
    const History history = model.fit(train, {.epochs = 3,
                                              .verbose = 2,
                                              .memory = "32MiB",
                                              .seed = seed,
                                              .threads = 1,
                                              .x_scale = 1.0 / 255});
    std::printf("%lld images in %s of memory, planned %s\n", static_cast<long long>(count),
                format_bytes(history.measured_process).c_str(),
                format_bytes(history.planned_process).c_str());
    std::printf("test accuracy %.4f\n", model.evaluate(test)["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "streaming_images: %s\n", error.what());
    return error.exit_code();
  }
}

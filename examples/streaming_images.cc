// Images streamed from disk into a model, in less memory than the images take.
//
//   streaming_images [seed]
//
// Fashion-MNIST's 60,000 training images are 47 MB; the whole process, the model and its training
// included, gets 32 MiB. Each batch is read from the file straight into the place that the plan
// has for it, in shuffled order. open_source also takes a folder of IDX files or an .npz.
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace pl;
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const Sources images = open_source("fashion-mnist");
    Sequential model(Shape{28, 28, 1}, {Flatten(), Dense(64, {.activation = "relu"}),
                                        Dense(10, {.activation = "softmax"})});
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
    const History history = model.fit(*images.train, {.batch_size = 128,
                                                      .epochs = 3,
                                                      .memory = "32MiB",
                                                      .seed = seed,
                                                      .verbose = 2,
                                                      .threads = 1,
                                                      .x_scale = 1.0 / 255});
    std::printf("%lld images in %s of memory, planned %s\n",
                static_cast<long long>(images.train->size()),
                format_bytes(history.measured_process).c_str(),
                format_bytes(history.planned_process).c_str());
    std::printf("test accuracy %.4f\n",
                model.evaluate(*images.test, {.batch_size = 128})["accuracy"]);
  } catch (const Error& error) {
    std::fprintf(stderr, "streaming_images: %s\n", error.what());
    return error.exit_code();
  }
}

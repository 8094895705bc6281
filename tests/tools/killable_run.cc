// A run to be killed: `killable_run FOLDER [EPOCHS]` trains with dropout, shuffling, a schedule and
// a plateau callback, backs up to FOLDER/backup every second step, goes on from what it finds
// there, and prints a hash of every variable at the end. scripts/kill-test kills it.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "model/layers.h"
#include "tensor/float16.h"
#include "train/model.h"

namespace {

using namespace pl;

constexpr int64_t kSamples = 600, kWidth = 64;

int run(const std::string& folder, int64_t epochs) {
  Tensor x({Dtype::float32, {kSamples, kWidth}}), y({Dtype::int32, {kSamples}});
  for (int64_t i = 0; i < kSamples * kWidth; ++i)
    x.data_as<float>()[i] = std::sin(static_cast<float>(i * 7 % 1013));
  for (int64_t i = 0; i < kSamples; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i * i % 10);
  Sequential model(Shape{kWidth}, {Dense(128, {.activation = "relu"}), Dropout(0.3),
                                   BatchNormalization(), Dense(128, {.activation = "relu"}),
                                   Dropout(0.2), Dense(10, {.activation = "softmax"})});
  // The scale doubles every 16 steps until gradients overflow, then it halves: it moves all the
  // time.
  model.compile({.optimizer = LossScaleOptimizer(
                     Adam({.learning_rate = CosineDecay({.initial_learning_rate = 0.001,
                                                         .decay_steps = 400,
                                                         .warmup_target = 0.01,
                                                         .warmup_steps = 40})}),
                     {.initial_scale = 1 << 20, .dynamic_growth_steps = 16}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .dtype = kMixedFloat16});
  model.fit(x, y,
            {.batch_size = 32,
             .epochs = epochs,
             .verbose = 0,
             .callbacks = {EarlyStopping({.patience = 1000, .restore_best_weights = true}),
                           CSVLogger(folder + "/log.csv"),
                           BackupAndRestore(folder + "/backup", {.save_freq = 2})},
             .validation_split = 0.1,
             .seed = 11,
             .threads = 1});
  model.save_checkpoint(folder + "/final");
  Xxh3 hash;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/final"))
    if (entry.path().extension() == ".safetensors")  // named by what is in it
      hash.update(entry.path().filename().string());
  std::printf("%s steps %lld\n", hex16(hash.digest()).c_str(),
              static_cast<long long>(model.iterations()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".", argc > 2 ? std::atoll(argv[2]) : 30);
  } catch (const Error& error) {
    std::fprintf(stderr, "killable_run: %s\n", error.what());
    return error.exit_code();
  }
}

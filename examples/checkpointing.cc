// A training step with gradient checkpointing. In other engines it is a choice by hand: mark the
// blocks whose activations are computed again for the backward part, and hope that it fits. Here a
// budget is enough; who wants to choose can, and sees before the first step what it brings.
//
//   checkpointing [seed]
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

using namespace pl;

namespace {

constexpr int64_t kBatch = 2048;

// Six blocks, (B, 128) to (B, 128), wide in the middle.
Sequential deep() {
  std::vector<LayerRef> layers;
  for (int i = 0; i < 6; ++i) {
    const std::string block = "block_" + std::to_string(i);
    layers.push_back(Dense(512, {.activation = "gelu", .name = block + "/up"}));
    layers.push_back(Dense(128, {.activation = "gelu", .name = block + "/down"}));
  }
  layers.push_back(Dense(10, {.activation = "softmax", .name = "head"}));
  return Sequential(Shape{128}, layers);
}

double train(const char* what, const std::vector<std::string>& remat, const Budget& memory,
             const Tensor& x, const Tensor& y, uint64_t seed) {
  Sequential model = deep();
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .remat = remat});
  const FitOptions options{
      .batch_size = kBatch, .epochs = 3, .verbose = 0, .memory = memory, .split = 1, .seed = seed};
  const History history = model.fit(x, y, options);
  std::printf("%-18s planned %s, measured %s; loss %.9g\n", what,
              format_bytes(history.planned_process).c_str(),
              format_bytes(history.measured_process).c_str(), history.history.at("loss").back());
  return history.history.at("loss").back();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    Tensor x({Dtype::float32, {kBatch, 128}}), y({Dtype::int32, {kBatch}});
    for (int64_t i = 0; i < kBatch; ++i) {
      for (int64_t j = 0; j < 128; ++j)
        x.data_as<float>()[i * 128 + j] = static_cast<float>((i * 31 + j * 17) % 97) / 97;
      y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 10);
    }
    const double plain = train("as it is", {}, {}, x, y, seed);
    const double by_hand = train("blocks by hand", {"block_*"}, {}, x, y, seed);
    const double planned = train("within 64 MiB", {}, "64MiB", x, y, seed);
    const bool same = plain == by_hand && plain == planned;
    std::puts(same ? "the same numbers" : "other numbers");
    return same ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "checkpointing: %s\n", error.what());
    return error.exit_code();
  }
}

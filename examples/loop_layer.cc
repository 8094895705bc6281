// A layer that adds up a hundred terms of its input, trained in a budget that its hundred
// activations would not fit: the engine computes them again, or works the batch off in parts.
//
//   loop_layer [memory] [batch] [seed]       such as: loop_layer 256MiB 4096
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace pl;

constexpr Dim kWidth = 512;
constexpr int kTerms = 100;

// y = 1/100 * sum over i of tanh(x * w + i / 100), every term with its own activation.
class AddUp : public Layer {
 public:
  const char* kind() const override { return "AddUp"; }
  Shape build(const std::vector<Shape>& in) override {
    add_weight("kernel", {in[0].back(), kWidth}, "glorot_uniform");
    return {kWidth};
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor product = matmul(call.in[0], call.weights[0]);  // (B, width)
    Tensor total = tanh(product);
    for (int i = 1; i < kTerms; ++i) total = add(total, tanh(scale(product, 1.0 + i / 100.0)));
    return scale(total, 1.0 / kTerms);
  }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string memory = argc > 1 ? argv[1] : "256MiB";
    const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 4096;
    Tensor x({Dtype::float32, {batch, 64}}), y({Dtype::int32, {batch}});
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t j = 0; j < 64; ++j)
        x.data_as<float>()[i * 64 + j] = static_cast<float>((i * 31 + j * 17) % 97) / 97;
      y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 10);
    }
    Sequential model({LayerRef(std::make_shared<AddUp>()), Dense(10, {.activation = "softmax"})});
    model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
    const FitOptions options{.batch_size = batch,
                             .epochs = 3,
                             .memory = memory,
                             .seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0};
    std::puts(to_text(model.plan(x, y, options)).c_str());
    const History history = model.fit(x, y, options);
    std::printf("memory: planned %s, measured %s; loss %.4f\n",
                format_bytes(history.planned_process).c_str(),
                format_bytes(history.measured_process).c_str(), history.history.at("loss").back());
  } catch (const Error& error) {
    std::fprintf(stderr, "loop_layer: %s\n", error.what());
    return error.exit_code();
  }
}

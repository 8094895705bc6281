// A train_step of one's own: the loss has the slope of the model's answer in it, a second
// derivative. fit() plans it and keeps to its budget as ever.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>

namespace {

using namespace pl;

class Smooth : public Sequential {
 public:
  Smooth() : Sequential(Shape{2}, {Dense(64, {.activation = "tanh"}), Dense(1)}) {}

  TensorLogs train_step(const StepData& data) override {
    const std::vector<Variable> weights = trainable_variables();
    GradientTape outer;
    GradientTape inner;
    inner.watch(data.x());
    const Tensor y_pred = (*this)(data.x(), true);
    const Tensor slope = inner.gradient(y_pred, {data.x()})[0];
    const Tensor penalty = reduce_mean(reduce_sum(square(slope), {1}));
    const Tensor loss = pl::add(compute_loss(data, y_pred), scale(penalty, 0.01));
    const Tensors gradients = outer.gradient(loss, weights);
    GradientsAndVariables list;
    for (size_t i = 0; i < weights.size(); ++i) list.emplace_back(gradients[i], weights[i]);
    optimizer().apply_gradients(list);
    return {{"loss", loss}, {"penalty", penalty}};
  }
};

}  // namespace

int main() {
  try {
    constexpr Dim kSamples = 512;
    Tensor x({Dtype::float32, {kSamples, 2}}), y({Dtype::float32, {kSamples, 1}});
    for (Dim i = 0; i < kSamples; ++i) {
      const double a = std::sin(0.7 * i), b = std::cos(1.3 * i);
      x.data_as<float>()[2 * i] = static_cast<float>(a);
      x.data_as<float>()[2 * i + 1] = static_cast<float>(b);
      y.data_as<float>()[i] = static_cast<float>(std::sin(3 * a) * b);
    }
    Smooth model;
    model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse"});
    const History history =
        model.fit(x, y, {.batch_size = 64, .epochs = 20, .verbose = 0, .memory = "64MiB"});
    std::printf("loss %.4f, then %.4f with a penalty of %.3f\n", history.history.at("loss").front(),
                history.history.at("loss").back(), history.history.at("penalty").back());
    std::printf("planned %s, used %s\n", format_bytes(history.planned_arena).c_str(),
                format_bytes(history.used_arena).c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "train_step: %s\n", error.what());
    return error.exit_code();
  }
}

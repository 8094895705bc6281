// A Keras program in C++: a layer made of layers, a loss with operators and constants, a functional
// model, callbacks, and a second model that ends at an inner layer.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>

namespace {

using namespace pl;

// class ResidualBlock(keras.layers.Layer)
class ResidualBlock : public Layer {
 public:
  explicit ResidualBlock(int64_t units)
      : dense1_(Dense(units, {.activation = "relu"})), dense2_(Dense(units)) {}
  const char* kind() const override { return "ResidualBlock"; }
  Shape build(const std::vector<Shape>& in) override { return in[0]; }
  Tensor call(const LayerCall& call) const override {
    return call.in[0] + dense2_(dense1_(call.in[0]));
  }

 private:
  LayerRef dense1_, dense2_;
};

// def pinball(y_true, y_pred): three quantiles at once
Tensor pinball(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor error = y_true - y_pred, quantiles = constant({0.1, 0.5, 0.9});
  return ops::mean(ops::maximum(quantiles * error, (quantiles - 1.0) * error), -1);
}

}  // namespace

int main() {
  try {
    constexpr Dim kSamples = 1024;
    Tensor x({Dtype::float32, {kSamples, 2}}), y({Dtype::float32, {kSamples, 1}});
    for (Dim i = 0; i < kSamples; ++i) {
      const double a = std::sin(0.7 * i), b = std::cos(1.3 * i);
      x.data_as<float>()[2 * i] = static_cast<float>(a);
      x.data_as<float>()[2 * i + 1] = static_cast<float>(b);
      y.data_as<float>()[i] = static_cast<float>(std::sin(3 * a) * b + 0.2 * std::sin(91.0 * i));
    }

    const Symbolic inputs = Input({2}, "point");
    Symbolic h = Dense(32, {.activation = "relu", .name = "stem"})(
        ops::concatenate({inputs, ops::square(inputs)}));
    for (int i = 0; i < 2; ++i) h = LayerRef(std::make_shared<ResidualBlock>(32))(h);
    Model model(inputs, Dense(3)(h));
    model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = pinball});
    const History history =
        model.fit(x, y,
                  {.batch_size = 64,
                   .epochs = 30,
                   .verbose = 0,
                   .callbacks = {EarlyStopping({.monitor = "val_loss", .patience = 8})},
                   .validation_split = 0.2,
                   .memory = "64MiB"});
    std::printf("val_loss %.4f, then %.4f\n", history.history.at("val_loss").front(),
                history.history.at("val_loss").back());
    for (const WeightInfo& weight : model.weights())
      if (weight.path.starts_with("residual_block/")) std::printf("%s\n", weight.path.c_str());

    Model features(model.inputs(), {model.get_layer("stem").output()});
    std::printf("features %s\n", features.predict(x).shape().text().c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "keras_user: %s\n", error.what());
    return error.exit_code();
  }
}

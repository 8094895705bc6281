#include "train/optimizer.h"

#include <cmath>

#include "base/error.h"
#include "op/functions.h"

namespace pl {
namespace {

void check_range(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high))
    throw UserError("[compile] " + std::string(what) + ": expected a number from " +
                    std::to_string(low) + " to " + std::to_string(high) + ", received " +
                    std::to_string(value));
}

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(SGDOptions options) : options_(options) {
    check_range("SGD learning_rate", options.learning_rate, 0, 1e30);
    check_range("SGD momentum", options.momentum, 0, 1);
    learning_rate = options.learning_rate;
  }
  const char* name() const override { return "sgd"; }
  std::vector<std::string> slots() const override {
    return options_.momentum > 0 ? std::vector<std::string>{"momentum"}
                                 : std::vector<std::string>{};
  }
  void update(const Tensor& w, const Tensors& slots, const Tensor& g,
              const Tensor& step_params) const override {
    if (slots.empty()) {
      sgd(w, g, step_params);
    } else {
      sgd_momentum(w, slots[0], g, step_params, {options_.momentum, options_.nesterov});
    }
  }

 private:
  SGDOptions options_;
};

class AdamOptimizer final : public Optimizer {
 public:
  explicit AdamOptimizer(AdamOptions options) : options_(options) {
    check_range("Adam learning_rate", options.learning_rate, 0, 1e30);
    check_range("Adam beta_1", options.beta_1, 0, 1);
    check_range("Adam beta_2", options.beta_2, 0, 1);
    check_range("Adam epsilon", options.epsilon, 0, 1);
    learning_rate = options.learning_rate;
  }
  const char* name() const override { return "adam"; }
  std::vector<std::string> slots() const override { return {"momentum", "velocity"}; }
  void update(const Tensor& w, const Tensors& slots, const Tensor& g,
              const Tensor& step_params) const override {
    adam(w, slots[0], slots[1], g, step_params,
         {options_.beta_1, options_.beta_2, options_.epsilon});
  }

 private:
  AdamOptions options_;
};

}  // namespace

OptimizerRef SGD(SGDOptions options) { return std::make_shared<SgdOptimizer>(options); }
OptimizerRef Adam(AdamOptions options) { return std::make_shared<AdamOptimizer>(options); }

OptimizerRef optimizer_from_name(const std::string& name) {
  if (name == "sgd") return SGD();
  if (name == "adam") return Adam();
  throw UserError("[compile] optimizer: expected one of adam, sgd, received '" + name +
                  "'; others are not built yet");
}

}  // namespace pl

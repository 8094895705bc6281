// Optimisers with Keras's names, defaults and formulas. An optimiser names its slots (one variable
// per parameter each) and appends its update to the trace; state lives in the arena.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual const char* name() const = 0;
  virtual std::vector<std::string> slots() const = 0;  // "momentum", "velocity"; start at zero
  // Appends the update of w (and of its slots, in slots() order) by gradient g.
  virtual void update(const Tensor& w, const Tensors& slots, const Tensor& g,
                      const Tensor& step_params) const = 0;
  double learning_rate = 0;
};
using OptimizerRef = std::shared_ptr<Optimizer>;

struct SGDOptions {
  double learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
};
OptimizerRef SGD(SGDOptions options = {});

struct AdamOptions {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
};
OptimizerRef Adam(AdamOptions options = {});

OptimizerRef optimizer_from_name(const std::string& name);  // Keras's defaults; throws UserError

}  // namespace pl

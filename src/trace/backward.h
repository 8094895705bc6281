// Backward: the one reverse walk. A traced graph and a gradient tape both describe themselves as a
// Trail; gradients are made by op functions, on symbols or on values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "op/op.h"

namespace pl {

class Recorder;

// What was computed, in order. Values are numbered from 0.
struct Trail {
  struct Step {
    const Op* op;
    std::vector<int> in, out;
  };
  struct Value {
    Dtype dtype;
    bool variable = false;
  };
  std::vector<Step> steps;
  std::vector<Value> values;
};

class Backward {
 public:
  // `wrt`: the values that are differentiated by.
  Backward(const Trail& trail, const std::vector<int>& wrt);

  // Adds to the gradient of a value.
  void add(int value, const Tensor& gradient);

  // Sends the gradients of a step's outputs on to its inputs; steps are visited last first. `in`
  // and `out` are its tensors; `path` names it in errors and, where a recorder is given, its
  // gradient's nodes. Throws UserError when its op has no gradient.
  struct Visit {
    const Attrs& attrs;
    const Tensors& in;
    const Tensors& out;
    const std::string& path;
    Recorder* recorder;
  };
  bool reaches(const Trail::Step& step) const;  // otherwise a visit does nothing
  void visit(const Trail::Step& step, const Visit& visit);

  const Tensor& sum(int value) const { return sum_[static_cast<size_t>(value)]; }
  // The gradient of a value whose step was visited is not needed again, unless it was asked for.
  void release(int value);

 private:
  std::vector<bool> depends_;  // per value: on what is differentiated by
  std::vector<bool> widened_;  // a weight rounded to 16 bits: its gradient is summed in float32
  std::vector<bool> wrt_;
  Tensors sum_;  // gradient so far
};

}  // namespace pl

#include "trace/backward.h"

#include "base/error.h"
#include "op/assign.h"
#include "op/cast.h"
#include "op/pointwise.h"
#include "op/recorder.h"

namespace pl {
namespace {

std::vector<bool> dependants(const Trail& trail, const std::vector<int>& wrt) {
  std::vector<bool> depends(trail.values.size(), false);
  for (int value : wrt) depends[index(value)] = true;
  for (const Trail::Step& step : trail.steps) {
    bool any = false;
    for (int in : step.in) any = any || depends[index(in)];
    if (!any) continue;
    for (int out : step.out)
      if (is_floating(trail.values[index(out)].dtype)) depends[index(out)] = true;
  }
  return depends;
}

// Variables cast to 16 bits, under all their shapes.
std::vector<bool> rounded_variables(const Trail& trail) {
  std::vector<bool> rounded(trail.values.size(), false);
  for (const Trail::Step& step : trail.steps) {
    const std::string_view op = step.op->name;
    if (op != "cast" && op != "reshape") continue;
    const Trail::Value &in = trail.values[index(step.in[0])],
                       &out = trail.values[index(step.out[0])];
    const bool narrows = size_of(out.dtype) < size_of(in.dtype) && is_floating(out.dtype);
    rounded[index(step.out[0])] =
        op == "reshape" ? rounded[index(step.in[0])] : in.variable && narrows;
  }
  return rounded;
}

}  // namespace

Backward::Backward(const Trail& trail, const std::vector<int>& wrt)
    : depends_(dependants(trail, wrt)),
      widened_(rounded_variables(trail)),
      wrt_(trail.values.size(), false),
      sum_(trail.values.size()) {
  for (int value : wrt) wrt_[index(value)] = true;
}

void Backward::add(int value, const Tensor& gradient) {
  Tensor& sum = sum_[index(value)];
  const Tensor part = widened_[index(value)] ? cast(gradient, wide(gradient.dtype())) : gradient;
  sum = sum.defined() ? pl::add(sum, part) : part;
}

bool Backward::reaches(const Trail::Step& step) const {
  bool flows = false, wanted = false;
  for (int out : step.out) flows = flows || sum_[index(out)].defined();
  for (int in : step.in) wanted = wanted || depends_[index(in)];
  return flows && wanted;
}

void Backward::visit(const Trail::Step& step, const Visit& visit) {
  if (!reaches(step)) return;
  Tensors dout;
  for (int out : step.out) dout.push_back(sum_[index(out)]);
  uint64_t wanted = 0, widened = 0;
  for (size_t i = 0; i < step.in.size(); ++i) {
    if (depends_[index(step.in[i])]) wanted |= uint64_t{1} << i;
    if (widened_[index(step.in[i])]) widened |= uint64_t{1} << i;
  }
  // What a variable was given is a constant, as in TensorFlow.
  if (step.op == &kAssign) return;
  if (!step.op->gradient)
    throw UserError("[gradient] " + visit.path + (visit.path.empty() ? "" : ": ") +
                    "expected an op with a gradient, received " + step.op->name +
                    "; stop the gradient before it or use another op");
  PathScope scope(visit.recorder, visit.path);
  const Tensors gradients =
      step.op->gradient({visit.attrs, visit.in, visit.out, dout, wanted, widened});
  check(gradients.size() == step.in.size(), "an op's gradient must answer for every input");
  for (size_t i = 0; i < step.in.size(); ++i)
    if (gradients[i].defined() && ((wanted >> i) & 1)) add(step.in[i], gradients[i]);
}

void Backward::release(int value) {
  if (!wrt_[index(value)]) sum_[index(value)] = Tensor();
}

}  // namespace pl

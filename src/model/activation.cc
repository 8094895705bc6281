// The activation functions, with Keras's names, formulas and defaults, composed of ops so that a
// chain of them runs in one pass. No intermediate result overflows where the answer is finite.
#include <cmath>
#include <optional>

#include "base/error.h"
#include "model/layers.h"
#include "model/remat.h"
#include "model/spec.h"
#include "op/functions.h"
#include "op/operators.h"

namespace pl {
namespace {

Tensor number(double value, const Tensor& like) { return fill({}, value, like.dtype()); }
Tensor clip(const Tensor& x, double least, double most) {
  return minimum(maximum(x, number(least, x)), number(most, x));
}

// x where positive, alpha * (e to the x / alpha' - 1) elsewhere; each part is 0 where the other is
// not.
Tensor elu(const Tensor& x, double alpha, double inner = 1) {
  const Tensor below = minimum(x, number(0, x));
  return add(relu(x), scale(expm1(inner == 1 ? below : scale(below, inner)), alpha));
}

// value where x > threshold, 0 elsewhere.
Tensor above(const Tensor& x, double threshold, const Tensor& value) {
  return relu_gradient(threshold == 0 ? x : scale(x, 1, -threshold), value);
}

Tensor hard_sigmoid(const Tensor& x) { return scale(clipped_relu(scale(x, 1, 3), 6), 1.0 / 6); }

// f over one axis, which is moved to the end for it.
template <class F>
Tensor along_axis(const Tensor& x, double wanted, const char* name, const F& f) {
  const int rank = x.shape().rank();
  const int axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
  if (axis < 1 || axis >= rank)
    throw UserError("[" + std::string(name) + "] axis: expected one behind the batch, below " +
                    std::to_string(rank) + ", received " +
                    std::to_string(static_cast<int>(wanted)));
  if (axis == rank - 1) return f(x);
  std::vector<int64_t> swapped;
  for (int i = 0; i < rank; ++i) swapped.push_back(i == axis ? rank - 1 : i == rank - 1 ? axis : i);
  return transpose(f(transpose(x, swapped)), swapped);
}

Tensor glu(const Tensor& x, double wanted) {
  const int rank = x.shape().rank();
  const int axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
  if (axis < 1 || axis >= rank || x.shape()[axis] % 2 != 0)
    throw UserError("[glu] expected an axis behind the batch with an even size, received " +
                    x.shape().text());
  const Dim half = x.shape()[axis] / 2;
  return multiply(slice(x, axis, 0, half), sigmoid(slice(x, axis, half, half)));
}

Tensor selu(const Tensor& x) {
  constexpr double kAlpha = 1.6732632423543772848, kScale = 1.0507009873554804934;
  return scale(elu(x, kAlpha), kScale);
}

// With c = clip(x, -1, 1): (c + 1)^2 / 4, and x - 1 more above 1.
Tensor sparse_plus(const Tensor& x) {
  return add(scale(square(scale(clip(x, -1, 1), 1, 1)), 0.25), relu(scale(x, 1, -1)));
}

// The one list of activations.
struct ActivationEntry {
  SpecEntry spec;
  Tensor (*apply)(const Tensor&, const Spec&);
  bool any_dtype = false;  // else integers come as float32
};
using T = Tensor;
using S = Spec;
constexpr ActivationEntry kActivations[] = {
    {{"linear"}, [](const T& x, const S&) { return x; }, true},
    {{"relu", "negative_slope max_value threshold"},
     [](const T& x, const S& s) {
       return general_relu(x, s.number("negative_slope", 0), s.number("max_value", kNoReluLimit),
                           s.number("threshold", 0));
     },
     true},
    {{"relu6"}, [](const T& x, const S&) { return general_relu(x, 0, 6, 0); }, true},
    {{"leaky_relu", "negative_slope"},
     [](const T& x, const S& s) {
       return general_relu(x, s.number("negative_slope", 0.2), kNoReluLimit, 0);
     }},
    {{"elu", "alpha"}, [](const T& x, const S& s) { return elu(x, s.number("alpha", 1)); }},
    {{"celu", "alpha"},
     [](const T& x, const S& s) {
       const double alpha = s.number("alpha", 1);
       return elu(x, alpha, 1 / alpha);
     }},
    {{"selu"}, [](const T& x, const S&) { return selu(x); }},
    {{"silu"}, [](const T& x, const S&) { return multiply(x, sigmoid(x)); }},
    {{"swish"}, [](const T& x, const S&) { return multiply(x, sigmoid(x)); }},
    {{"softmax", "axis"},
     [](const T& x, const S& s) {
       return along_axis(x, s.number("axis", -1), "softmax", [](const T& z) { return softmax(z); });
     }},
    {{"log_softmax", "axis"},
     [](const T& x, const S& s) {
       return along_axis(x, s.number("axis", -1), "log_softmax",
                         [](const T& z) { return log_softmax(z); });
     }},
    {{"sparsemax", "axis"},
     [](const T& x, const S& s) {
       return along_axis(x, s.number("axis", -1), "sparsemax",
                         [](const T& z) { return sparsemax(z); });
     }},
    {{"sigmoid"}, [](const T& x, const S&) { return sigmoid(x); }},
    {{"log_sigmoid"}, [](const T& x, const S&) { return negative(softplus(negative(x))); }},
    {{"hard_sigmoid"}, [](const T& x, const S&) { return hard_sigmoid(x); }},
    {{"sparse_sigmoid"}, [](const T& x, const S&) { return scale(clip(x, -1, 1), 0.5, 0.5); }},
    {{"hard_silu"}, [](const T& x, const S&) { return multiply(x, hard_sigmoid(x)); }},
    {{"hard_swish"}, [](const T& x, const S&) { return multiply(x, hard_sigmoid(x)); }},
    {{"tanh"}, [](const T& x, const S&) { return tanh(x); }},
    {{"hard_tanh"}, [](const T& x, const S&) { return clip(x, -1, 1); }},
    {{"tanh_shrink"}, [](const T& x, const S&) { return subtract(x, tanh(x)); }},
    {{"soft_shrink", "threshold"},
     [](const T& x, const S& s) {
       const double t = s.number("threshold", 0.5);
       return subtract(relu(scale(x, 1, -t)), relu(scale(x, -1, -t)));
     }},
    {{"hard_shrink", "threshold"},
     [](const T& x, const S& s) { return above(abs(x), s.number("threshold", 0.5), x); }},
    {{"threshold", "threshold value default_value"},
     [](const T& x, const S& s) {
       const double value = s.number("default_value", s.number("value", 0));
       return scale(above(x, s.number("threshold", 0), scale(x, 1, -value)), 1, value);
     }},
    {{"softplus"}, [](const T& x, const S&) { return softplus(x); }},
    {{"sparse_plus"}, [](const T& x, const S&) { return sparse_plus(x); }},
    {{"squareplus", "b"},
     [](const T& x, const S& s) {
       return scale(add(x, sqrt(scale(square(x), 1, s.number("b", 4)))), 0.5);
     }},
    {{"softsign"}, [](const T& x, const S&) { return divide(x, scale(abs(x), 1, 1)); }},
    {{"mish"}, [](const T& x, const S&) { return multiply(x, tanh(softplus(x))); }},
    {{"gelu", "approximate"},
     [](const T& x, const S& s) { return gelu(x, s.number("approximate", 0) != 0); }},
    {{"gelu_tanh"}, [](const T& x, const S&) { return gelu(x, true); }},  // GPT-2's approximation
    {{"exponential"}, [](const T& x, const S&) { return exp(x); }},
    {{"glu", "axis"}, [](const T& x, const S& s) { return glu(x, s.number("axis", -1)); }},
};

Spec parsed(const std::string& activation) {
  std::vector<SpecEntry> known;
  for (const ActivationEntry& entry : kActivations) known.push_back(entry.spec);
  return parse_spec("activation", activation, known);
}

}  // namespace

Tensor real_of(const Tensor& x) {
  return x.defined() && !is_floating(x.dtype()) ? cast(x, Dtype::float32) : x;
}

Tensor general_relu(const Tensor& x, double slope, double most, double threshold) {
  const bool capped = most < kNoReluLimit;
  if (x.defined() && !is_floating(x.dtype())) {
    if (slope != 0 || threshold != 0 || (capped && most != std::floor(most)))
      return general_relu(real_of(x), slope, most, threshold);
    const Tensor in = cast(x, common_dtype(x.dtype(), Dtype::int32));
    const Tensor y = maximum(in, number(0, in));
    return capped ? minimum(y, number(most, in)) : y;
  }
  if (threshold == 0 && slope > 0 && slope < 1 && !capped) return leaky_relu(x, slope);
  if (threshold == 0 && slope == 0 && capped && most > 0) return clipped_relu(x, most);
  Tensor y = threshold == 0 ? relu(x) : above(x, threshold, x);
  if (capped) y = clip(y, 0, most);
  if (slope != 0) y = subtract(y, scale(relu(scale(x, -1, threshold)), slope));
  return y;
}

void check_activation(const std::string& activation, bool any_shape) {
  const Spec spec = parsed(activation);
  if (spec.name == "glu" && !any_shape)
    throw UserError(
        "[model] activation: expected one that keeps the shape, received 'glu'; use "
        "Activation(\"glu\") behind the layer");
}

Tensor activate(const std::string& activation, const Tensor& x) {
  const Spec spec = parsed(activation);
  for (const ActivationEntry& entry : kActivations)
    if (spec.name == entry.spec.name) {
      std::optional<RematScope> scope;
      if (RematActivations::wanted()) scope.emplace("activation");
      return entry.apply(entry.any_dtype ? x : real_of(x), spec);
    }
  return x;
}

Shape activated_shape(const std::string& activation, Shape in) {
  const Spec spec = parsed(activation);
  if (spec.name != "glu") return in;
  const auto wanted = static_cast<int>(spec.number("axis", -1));
  const int axis = (wanted < 0 ? wanted + in.rank() + 1 : wanted) - 1;  // without the batch
  if (axis < 0 || axis >= in.rank() || in[axis] % 2 != 0)
    throw UserError("expected an even size along the axis that glu halves, received " + in.text());
  in[axis] /= 2;
  return in;
}

}  // namespace pl

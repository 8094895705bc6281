// Adam in Keras's formulas: epsilon outside the square root, bias correction folded into the rate.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAdam;

struct AdamUpdateOptions {
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double weight_decay = 0;  // decoupled, before the rest
};
struct AdamResult {
  Tensor w, m, v;  // their next versions
};

// With t the step, from 1:
//   alpha = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
//   m' = m + (g - m) * (1 - beta_1)
//   v' = v + (g * g - v) * (1 - beta_2)
//   w' = w - w * weight_decay * learning_rate - m' * alpha / (sqrt(v') + epsilon)
AdamResult adam(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                const Tensor& step_params, const AdamUpdateOptions& options = {});

AdamUpdateOptions adam_options(const Attrs& attrs);

namespace cpu {
// alpha above, for the step in a StepParams, computed in T (float or double) as Keras does: in
// float32 1 - beta_2^t is off by up to 1e-5, and losses that must agree with Keras's need the same.
template <class T>
T adam_rate(const void* step_params, double beta_1, double beta_2);

// What a step takes of each weight besides, in the same way; 0: nothing, and w keeps its bits.
template <class T>
struct AdamDecay {
  T decay, rate;  // w - (w * decay) * rate
};
template <class T>
AdamDecay<T> adam_decay(const void* step_params, double weight_decay);

// The numbers of a step in float32; rest_1 and rest_2 are 1 - beta.
struct AdamNumbers {
  float alpha, rest_1, rest_2, epsilon;
  AdamDecay<float> decay;
};

std::unique_ptr<Kernel> adam_simd(const PrepareCall&);
std::unique_ptr<Kernel> adam_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

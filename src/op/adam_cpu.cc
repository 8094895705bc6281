// Reference kernel of adam. The fast one, with the same roundings, is in adam_simd.cc. Outputs are
// usually the inputs' own memory.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/adam.h"
#include "op/kernel.h"
#include "op/step_params.h"

namespace pl::cpu {

template <class T>
T adam_rate(const void* step_params, double beta_1, double beta_2) {
  const auto& params = *static_cast<const StepParams*>(step_params);
  const double t = static_cast<double>(params.updates());
  // By way of double, so that the power is rounded once, whatever the C library.
  auto power = [&](double beta) {
    return static_cast<T>(std::pow(static_cast<double>(static_cast<T>(beta)), t));
  };
  return static_cast<T>(params.learning_rate) * std::sqrt(1 - power(beta_2)) / (1 - power(beta_1));
}
template float adam_rate<float>(const void*, double, double);
template double adam_rate<double>(const void*, double, double);

template <class T>
AdamDecay<T> adam_decay(const void* step_params, double weight_decay) {
  const auto& params = *static_cast<const StepParams*>(step_params);
  return {static_cast<T>(weight_decay), static_cast<T>(params.learning_rate)};
}
template AdamDecay<float> adam_decay<float>(const void*, double);
template AdamDecay<double> adam_decay<double>(const void*, double);

std::unique_ptr<Kernel> adam_reference(const PrepareCall& call) {
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  const AdamUpdateOptions options = adam_options(call.attrs);
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T *w = static_cast<const T*>(in[0]), *m = static_cast<const T*>(in[1]);
      const T *v = static_cast<const T*>(in[2]), *g = static_cast<const T*>(in[3]);
      T *next_w = static_cast<T*>(out[0]), *next_m = static_cast<T*>(out[1]);
      T* next_v = static_cast<T*>(out[2]);
      const T alpha = adam_rate<T>(in[4], options.beta_1, options.beta_2);
      const T one_minus_1 = static_cast<T>(1 - options.beta_1);
      const T one_minus_2 = static_cast<T>(1 - options.beta_2);
      const T epsilon = static_cast<T>(options.epsilon);
      const auto [decay, rate] = adam_decay<T>(in[4], options.weight_decay);
      parallel_ranges(threads, count, 4 * count,
                      [&, decay = decay, rate = rate](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const T moment = m[i] + (g[i] - m[i]) * one_minus_1;
                          const T square = v[i] + (g[i] * g[i] - v[i]) * one_minus_2;
                          next_m[i] = moment;
                          next_v[i] = square;
                          const T kept = decay != 0 ? w[i] - w[i] * decay * rate : w[i];
                          next_w[i] = kept - moment * alpha / (std::sqrt(square) + epsilon);
                        }
                      });
    });
  });
}

}  // namespace pl::cpu

// Reference kernel of adam. The fast one, with the same roundings, is in adam_simd.cc. Outputs are
// usually the inputs' own memory.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/adam.h"
#include "op/kernel.h"
#include "op/step_params.h"

namespace pl::cpu {

double adam_rate(const void* step_params, double beta_1, double beta_2) {
  const auto& params = *static_cast<const StepParams*>(step_params);
  const double t = static_cast<double>(params.step);
  return params.learning_rate * std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(beta_1, t));
}

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
      const T alpha = static_cast<T>(adam_rate(in[4], options.beta_1, options.beta_2));
      const T one_minus_1 = static_cast<T>(1 - options.beta_1);
      const T one_minus_2 = static_cast<T>(1 - options.beta_2);
      const T epsilon = static_cast<T>(options.epsilon);
      parallel_ranges(threads, count, 4 * count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T moment = m[i] + (g[i] - m[i]) * one_minus_1;
          const T square = v[i] + (g[i] * g[i] - v[i]) * one_minus_2;
          next_m[i] = moment;
          next_v[i] = square;
          next_w[i] = w[i] - moment * alpha / (std::sqrt(square) + epsilon);
        }
      });
    });
  });
}

}  // namespace pl::cpu

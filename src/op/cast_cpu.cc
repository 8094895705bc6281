// CPU kernel of cast: one loop for each pair of dtypes.
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/cast.h"
#include "op/kernel.h"
#include "op/number.h"
#include "op/widen.h"

namespace pl::cpu {
namespace {

struct Boolean {
  uint8_t byte;  // not bool: a byte other than 0 and 1 must not be undefined behaviour
};

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<From, Bfloat16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return Bfloat16(convert<float>(x));
  } else if constexpr (std::is_same_v<From, Boolean>) {
    return convert<To>(static_cast<int32_t>(x.byte != 0));
  } else if constexpr (std::is_same_v<To, Boolean>) {
    return {static_cast<uint8_t>(x != From(0))};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return saturated<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class F>
std::unique_ptr<Kernel> dispatch(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::uint8:
      return body.template operator()<uint8_t>();
    case Dtype::bfloat16:
      return body.template operator()<Bfloat16>();
    case Dtype::boolean:
      return body.template operator()<Boolean>();
    default:
      return dispatch_number(dtype, body);
  }
}

}  // namespace

std::unique_ptr<Kernel> cast_reference(const PrepareCall& call) {
  return dispatch(call.in[0].dtype, [&]<class From>() {
    return dispatch(call.out[0].dtype, [&]<class To>() {
      const Dim total = call.out[0].elements();
      const int threads = call.backend.threads();
      return make_kernel([=](void* const* in, void* const* out, void*) {
        const From* x = static_cast<const From*>(in[0]);
        To* y = static_cast<To*>(out[0]);
        parallel_ranges(
            threads, total, total,
            [&](Dim begin, Dim end) {
#pragma omp simd
              for (Dim i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
            },
            64);
      });
    });
  });
}

// float32 to bfloat16 and back.
std::unique_ptr<Kernel> cast_simd(const PrepareCall& call) {
  const Dtype from = call.in[0].dtype, to = call.out[0].dtype;
  const bool narrows = from == Dtype::float32 && to == Dtype::bfloat16;
  if (!narrows && !(from == Dtype::bfloat16 && to == Dtype::float32)) return nullptr;
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    parallel_ranges(
        threads, total, total,
        [&](Dim begin, Dim end) {
          auto run = [&]<class From, class To>(const From* x, To* y) {
            convert_range(x + begin, y + begin, end - begin);
          };
          if (narrows)
            run(static_cast<const float*>(in[0]), static_cast<Bfloat16*>(out[0]));
          else
            run(static_cast<const Bfloat16*>(in[0]), static_cast<float*>(out[0]));
        },
        64);
  });
}

}  // namespace pl::cpu

// CPU kernel of random: four numbers from each block of the stream; normal ones in pairs, by
// Box-Muller in float64, whatever the dtype.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/dropout.h"
#include "op/kernel.h"
#include "op/random.h"

namespace pl::cpu {
namespace {

double unit(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }  // in (0, 1)

double drawn(const PhiloxWords& words, size_t lane, bool normal) {
  if (!normal) return unit(words[lane]);
  const double length = std::sqrt(-2 * std::log(unit(words[lane / 2 * 2])));
  const double angle = 2 * std::numbers::pi * unit(words[lane / 2 * 2 + 1]);
  return length * (lane % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, Bfloat16>)
    return Bfloat16(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

}  // namespace

std::unique_ptr<Kernel> random_reference(const PrepareCall& call) {
  const Shape& shape = call.out[0].shape;
  const Dim total = shape.elements();
  const bool rows = call.attrs.integer("rows", 0) && shape.rank() > 0 && total > 0;
  const DropoutForm form{total, rows ? total / shape[0] : 0, 0,
                         static_cast<uint64_t>(call.attrs.integer("stream"))};
  const bool normal = call.attrs.text("distribution", "normal") == "normal";
  const double a = call.attrs.real("a", 0), b = call.attrs.real("b", 1);
  const double factor = normal ? b : b - a;
  const int threads = call.backend.threads();
  auto body = [&]<class T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      T* y = static_cast<T*>(out[0]);
      const DropoutMask place = dropout_mask(form, in[0]);  // where the stream begins
      parallel_ranges(threads, total, total * 32, [&](Dim begin, Dim end) {
        for (Dim i = begin; i < end;) {
          const auto index = static_cast<uint64_t>(place.base + i);
          const PhiloxWords words = philox_block(place.key, place.step, index / 4);
          for (size_t lane = index % 4; lane < 4 && i < end; ++lane, ++i)
            y[i] = rounded<T>(a + factor * drawn(words, lane, normal));
        }
      });
    });
  };
  if (call.out[0].dtype == Dtype::bfloat16) return body.template operator()<Bfloat16>();
  return dispatch_float(call.out[0].dtype, body);
}

}  // namespace pl::cpu

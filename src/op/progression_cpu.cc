// CPU kernel of progression.
#include <limits>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/number.h"
#include "op/progression.h"

namespace pl::cpu {
namespace {

// Integers are rounded down. The library's floor is a call, where the least processor has none.
template <class As>
As element(double value) {
  const As near = Number(value).as<As>();
  if constexpr (std::is_integral_v<As> && !std::is_same_v<As, bool>)
    return static_cast<double>(near) > value && near > std::numeric_limits<As>::min()
               ? static_cast<As>(near - 1)
               : near;
  else
    return near;
}

// Elements of type T, each from a number as an element of type As.
template <class T, class As = T>
std::unique_ptr<Kernel> counted(const PrepareCall& call) {
  const ProgressionForm f = progression_form(call.attrs);
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const*, void* const* out, void*) {
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(
        threads, total, total,
        [&](Dim begin, Dim end) {
          for (Dim i = begin; i < end; ++i)
            y[i] = element<As>((static_cast<double>(i) * f.step + f.start) * f.factor);
          if (f.ends && begin < end && end == total) y[end - 1] = element<As>(f.end);
        },
        64);
  });
}

}  // namespace

std::unique_ptr<Kernel> progression_reference(const PrepareCall& call) {
  switch (call.out[0].dtype) {
    case Dtype::float32:
      return counted<float>(call);
    case Dtype::float64:
      return counted<double>(call);
    case Dtype::int32:
      return counted<int32_t>(call);
    case Dtype::int64:
      return counted<int64_t>(call);
    case Dtype::uint8:
      return counted<uint8_t>(call);
    case Dtype::boolean:
      return counted<uint8_t, bool>(call);
    default:
      return nullptr;
  }
}

}  // namespace pl::cpu

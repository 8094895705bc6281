// CPU kernel of fill.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/fill.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

template <class T>
std::unique_ptr<Kernel> filled(const PrepareCall& call, T value) {
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const*, void* const* out, void*) {
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(
        threads, total, total, [&](Dim begin, Dim end) { std::fill(y + begin, y + end, value); },
        64);
  });
}

}  // namespace

std::unique_ptr<Kernel> fill_reference(const PrepareCall& call) {
  const Attrs& attrs = call.attrs;
  const Number value =
      attrs.has("exact") ? Number(attrs.integer("exact")) : Number(attrs.real("value"));
  switch (call.out[0].dtype) {
    case Dtype::float32:
      return filled(call, value.as<float>());
    case Dtype::float64:
      return filled(call, value.as<double>());
    case Dtype::int32:
      return filled(call, value.as<int32_t>());
    case Dtype::int64:
      return filled(call, value.as<int64_t>());
    case Dtype::uint8:
      return filled(call, value.as<uint8_t>());
    case Dtype::boolean:
      return filled(call, static_cast<uint8_t>(value.as<bool>()));
    default:
      return nullptr;
  }
}

}  // namespace pl::cpu

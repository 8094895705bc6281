// Element types. Kernels switch on them through dispatch_float (op/kernel.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pl {

enum class Dtype : uint8_t { float32, float64, bfloat16, float16, int32, int64, uint8, boolean };

int64_t size_of(Dtype dtype);           // bytes of one element
std::string_view name_of(Dtype dtype);  // "float32", Keras's words
bool is_floating(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

// What sums and statistics of a dtype are kept in: float32 for 16-bit floats.
inline Dtype wide(Dtype dtype) {
  return dtype == Dtype::bfloat16 || dtype == Dtype::float16 ? Dtype::float32 : dtype;
}

// Keras's dtype policy: what variables are kept in, and what layers compute in.
struct Policy {
  constexpr Policy(Dtype both = Dtype::float32) : variable(both), compute(both) {}
  constexpr Policy(Dtype variables, Dtype computation)
      : variable(variables), compute(computation) {}
  Dtype variable, compute;
  bool operator==(const Policy&) const = default;
};
inline constexpr Policy kMixedBfloat16{Dtype::float32, Dtype::bfloat16};

// Among float32, float64 and mixed_bfloat16.
std::string_view name_of(Policy policy);
std::optional<Policy> policy_from_name(std::string_view name);

}  // namespace pl

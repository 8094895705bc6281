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

}  // namespace pl

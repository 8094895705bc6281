#include "tensor/dtype.h"

#include "tensor/float16.h"

namespace pl {
namespace {

struct Entry {
  Dtype dtype;
  std::string_view name;
  int64_t size;
  bool floating;
};

// Indexed by Dtype.
constexpr Entry kTable[] = {
    {Dtype::float32, "float32", 4, true},   {Dtype::float64, "float64", 8, true},
    {Dtype::bfloat16, "bfloat16", 2, true}, {Dtype::float16, "float16", 2, true},
    {Dtype::int32, "int32", 4, false},      {Dtype::int64, "int64", 8, false},
    {Dtype::uint8, "uint8", 1, false},      {Dtype::boolean, "bool", 1, false},
};

}  // namespace

int64_t size_of(Dtype dtype) { return kTable[static_cast<int>(dtype)].size; }
std::string_view name_of(Dtype dtype) { return kTable[static_cast<int>(dtype)].name; }
bool is_floating(Dtype dtype) { return kTable[static_cast<int>(dtype)].floating; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Entry& entry : kTable)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

std::string_view name_of(Policy policy) {
  if (policy == kMixedFloat16) return "mixed_float16";
  return policy == kMixedBfloat16 ? "mixed_bfloat16" : name_of(policy.variable);
}

std::optional<Policy> policy_from_name(std::string_view name) {
  for (const Policy policy :
       {Policy(Dtype::float32), Policy(Dtype::float64), kMixedBfloat16, kMixedFloat16})
    if (name == name_of(policy)) return policy;
  return std::nullopt;
}

}  // namespace pl

#include "data/disk_array.h"

#include "base/error.h"

namespace pl {
namespace {

struct Entry {
  std::string_view name;
  Bytes size;
  Dtype dtype;
};

// Indexed by Stored.
constexpr Entry kTable[] = {
    {"bool", 1, Dtype::boolean},    {"uint8", 1, Dtype::uint8},     {"int8", 1, Dtype::int32},
    {"int16", 2, Dtype::int32},     {"uint16", 2, Dtype::int32},    {"int32", 4, Dtype::int32},
    {"uint32", 4, Dtype::int64},    {"int64", 8, Dtype::int64},     {"uint64", 8, Dtype::int64},
    {"float16", 2, Dtype::float16}, {"float32", 4, Dtype::float32}, {"float64", 8, Dtype::float64},
};

constexpr int kMostDimensions = 32;

}  // namespace

Bytes size_of(Stored stored) { return kTable[static_cast<int>(stored)].size; }
std::string_view name_of(Stored stored) { return kTable[static_cast<int>(stored)].name; }
bool is_floating(Stored stored) { return is_floating(dtype_of(stored)); }
Dtype dtype_of(Stored stored) { return kTable[static_cast<int>(stored)].dtype; }

Bytes checked_bytes(const Shape& shape, Bytes element_bytes, const std::string& what) {
  if (shape.rank() > kMostDimensions)
    throw DataError("[data] " + what + ": expected at most " + std::to_string(kMostDimensions) +
                    " dimensions, received " + std::to_string(shape.rank()));
  // In the order of Shape::elements(), so that what passes here does not throw there.
  Bytes bytes = element_bytes;
  int64_t elements = 1;
  for (Dim dim : shape) {
    const auto more = checked_mul(elements, dim);
    const auto size = more ? checked_mul(*more, element_bytes) : std::nullopt;
    if (!size || *size >= (Bytes{1} << 62))
      throw DataError("[data] " + what + ": expected dimensions that are not negative and a size " +
                      "below 2^62 bytes, received shape " + shape.text());
    elements = *more;
    bytes = *size;
  }
  return bytes;
}

}  // namespace pl

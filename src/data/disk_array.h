// DiskArray: a dense array that stays in its file; rows are read by offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "tensor/shape.h"

namespace pl {

// Element types as files have them, little-endian.
enum class Stored : uint8_t {
  boolean,
  uint8,
  int8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64
};

Bytes size_of(Stored stored);
std::string_view name_of(Stored stored);
bool is_floating(Stored stored);
// What it becomes in memory: itself, or the least integer type of ours that holds it.
Dtype dtype_of(Stored stored);

struct DiskArray {
  std::shared_ptr<const File> file;
  ByteOffset data_at = 0;
  Stored stored = Stored::uint8;
  Shape shape;       // with the dimension that counts samples
  std::string what;  // "data.npz: array x", for messages
};

// Bytes of an array; throws DataError naming `what` when a dimension is negative, the rank is above
// 32 or the product is not below 2^62.
Bytes checked_bytes(const Shape& shape, Bytes element_bytes, const std::string& what);

}  // namespace pl

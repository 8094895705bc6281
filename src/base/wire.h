// Protocol buffers' wire format, by hand: the few messages that TensorBoard and TFRecords hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pl {

// The bytes of a number, little-endian like this processor.
template <class T>
std::string raw_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Writing: a field's number with its wire type, then the value.
std::string wire_varint(uint64_t value);
std::string wire_integer(int number, uint64_t value);
std::string wire_float(int number, float value);
std::string wire_double(int number, double value);
std::string wire_bytes(int number, std::string_view value);

struct WireField {
  enum Type : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  int number = 0;
  Type type = varint;
  uint64_t value = 0;     // unless bytes
  std::string_view text;  // if bytes
};

// Reading: field after field of a message from a hostile file. Both texts must outlive the reader;
// `what` names the file in the DataError of a message that is none.
class WireReader {
 public:
  WireReader(std::string_view message, std::string_view what) : left_(message), what_(what) {}
  std::optional<WireField> next();  // nothing at the end
  // Numbers of a packed list, whose wire format has no field numbers.
  bool at_end() const { return left_.empty(); }
  uint64_t varint();
  uint64_t fixed(size_t bytes);  // little-endian

 private:
  std::string_view take(uint64_t count);

  std::string_view left_, what_;
};

}  // namespace pl

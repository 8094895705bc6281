#include "base/wire.h"

#include <cstring>

#include "base/error.h"

namespace pl {
namespace {

std::string key(int number, WireField::Type type) {
  return wire_varint(static_cast<uint64_t>(number) << 3 | type);
}

DataError damaged(std::string_view what, const std::string& received) {
  return DataError("[data] " + std::string(what) +
                   ": expected a message in protocol buffers' format, received " + received +
                   "; the file is damaged or of another kind");
}

}  // namespace

std::string wire_varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string wire_integer(int number, uint64_t value) {
  return key(number, WireField::varint) + wire_varint(value);
}
std::string wire_float(int number, float value) {
  return key(number, WireField::fixed32) + raw_bytes(value);
}
std::string wire_double(int number, double value) {
  return key(number, WireField::fixed64) + raw_bytes(value);
}
std::string wire_bytes(int number, std::string_view value) {
  return key(number, WireField::bytes) + wire_varint(value.size()) + std::string(value);
}

std::string_view WireReader::take(uint64_t count) {
  if (count > left_.size())
    throw damaged(what_, "a field of " + std::to_string(count) + " bytes where " +
                             std::to_string(left_.size()) + " are left");
  const std::string_view taken = left_.substr(0, count);
  left_.remove_prefix(count);
  return taken;
}

uint64_t WireReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw damaged(what_, "a number of more than 64 bits");
}

uint64_t WireReader::fixed(size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, take(bytes).data(), bytes);
  return value;
}

std::optional<WireField> WireReader::next() {
  if (left_.empty()) return std::nullopt;
  const uint64_t key = varint();
  WireField field;
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
    throw damaged(what_, "field number " + std::to_string(key >> 3));
  field.number = static_cast<int>(key >> 3);
  switch (key & 7) {
    case WireField::varint:
      field.value = varint();
      break;
    case WireField::fixed64:
      field.type = WireField::fixed64, field.value = fixed(8);
      break;
    case WireField::bytes:
      field.type = WireField::bytes, field.text = take(varint());
      break;
    case WireField::fixed32:
      field.type = WireField::fixed32, field.value = fixed(4);
      break;
    default:
      throw damaged(what_, "wire type " + std::to_string(key & 7));
  }
  return field;
}

}  // namespace pl

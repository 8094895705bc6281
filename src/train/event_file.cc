#include "train/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace pl {
namespace {

constexpr std::string_view kStart = "events.out.tfevents.";
constexpr int kFloat = 1, kDouble = 2;  // DataType

std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

// Little-endian, as the format has it everywhere.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

// Fields of a protobuf message: the number with the wire type, then the value.
std::string integer_field(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}
std::string double_field(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + raw(value);
}
std::string bytes_field(int number, std::string_view value) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string fresh_name() {
  static std::atomic<int> counter{0};
  char host[128] = "localhost";
  ::gethostname(host, sizeof host - 1);
  char text[256];
  std::snprintf(text, sizeof text, "%s%010lld.%s.%d.%d.v2", std::string(kStart).c_str(),
                static_cast<long long>(wall_time()), host, static_cast<int>(::getpid()), counter++);
  return text;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = make_table();
  uint32_t c = 0xFFFFFFFFu;
  for (char byte : bytes) c = table[(c ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (c >> 8);
  c = ~c;
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

void EventFile::create(const std::string& folder) {
  make_directories(folder);
  name_ = fresh_name();
  file_.open((std::filesystem::path(folder) / name_).string(), 0);
  record(double_field(1, wall_time()) + bytes_field(3, "brain.Event:2"));
}

void EventFile::go_on(const std::string& folder, const std::string& name, Bytes bytes) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  std::error_code error;
  if (!name.starts_with(kStart) || name.find('/') != std::string::npos ||
      !std::filesystem::exists(path, error)) {
    create(folder);
    return;
  }
  name_ = name;
  file_.open(path, bytes);
}

void EventFile::scalar(std::string_view tag, double number, int64_t step) {
  // TensorProto: dtype 1, tensor_shape 2, float_val 5.
  const std::string tensor = integer_field(1, kFloat) + bytes_field(2, "") +
                             bytes_field(5, raw(static_cast<float>(number)));
  value(tag, "scalars", tensor, step);
}

void EventFile::histogram(std::string_view tag, std::span<const Bucket> buckets, int64_t step) {
  std::string content;  // (buckets, 3)
  for (const Bucket& bucket : buckets)
    content += raw(bucket.left) + raw(bucket.right) + raw(bucket.count);
  const std::string shape =
      bytes_field(2, integer_field(1, buckets.size())) + bytes_field(2, integer_field(1, 3));
  const std::string tensor =
      integer_field(1, kDouble) + bytes_field(2, shape) + bytes_field(4, content);
  value(tag, "histograms", tensor, step);
}

void EventFile::value(std::string_view tag, std::string_view plugin, const std::string& tensor,
                      int64_t step) {
  // Summary.Value: tag 1, tensor 8, metadata 9 {plugin_data 1 {plugin_name 1}}.
  const std::string metadata = bytes_field(1, bytes_field(1, plugin));
  const std::string entry = bytes_field(1, tag) + bytes_field(9, metadata) + bytes_field(8, tensor);
  // Event: wall_time 1, step 2, summary 5 {value 1}.
  record(double_field(1, wall_time()) + integer_field(2, static_cast<uint64_t>(step)) +
         bytes_field(5, bytes_field(1, entry)));
}

void EventFile::record(const std::string& message) {
  const std::string length = raw(static_cast<uint64_t>(message.size()));
  file_.write(length + raw(masked_crc32c(length)) + message + raw(masked_crc32c(message)));
}

}  // namespace pl

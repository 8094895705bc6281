#include "train/event_file.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/wire.h"
#include "data/tfrecord.h"

namespace pl {
namespace {

constexpr std::string_view kStart = "events.out.tfevents.";
constexpr int kFloat = 1, kDouble = 2;  // DataType

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

void EventFile::create(const std::string& folder) {
  make_directories(folder);
  name_ = fresh_name();
  file_.open((std::filesystem::path(folder) / name_).string(), 0);
  record(wire_double(1, wall_time()) + wire_bytes(3, "brain.Event:2"));
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
  const std::string tensor = wire_integer(1, kFloat) + wire_bytes(2, "") +
                             wire_bytes(5, raw_bytes(static_cast<float>(number)));
  value(tag, "scalars", tensor, step);
}

void EventFile::histogram(std::string_view tag, std::span<const Bucket> buckets, int64_t step) {
  std::string content;  // (buckets, 3)
  for (const Bucket& bucket : buckets)
    content += raw_bytes(bucket.left) + raw_bytes(bucket.right) + raw_bytes(bucket.count);
  const std::string shape =
      wire_bytes(2, wire_integer(1, buckets.size())) + wire_bytes(2, wire_integer(1, 3));
  const std::string tensor =
      wire_integer(1, kDouble) + wire_bytes(2, shape) + wire_bytes(4, content);
  value(tag, "histograms", tensor, step);
}

void EventFile::value(std::string_view tag, std::string_view plugin, const std::string& tensor,
                      int64_t step) {
  // Summary.Value: tag 1, tensor 8, metadata 9 {plugin_data 1 {plugin_name 1}}.
  const std::string metadata = wire_bytes(1, wire_bytes(1, plugin));
  const std::string entry = wire_bytes(1, tag) + wire_bytes(9, metadata) + wire_bytes(8, tensor);
  // Event: wall_time 1, step 2, summary 5 {value 1}.
  record(wire_double(1, wall_time()) + wire_integer(2, static_cast<uint64_t>(step)) +
         wire_bytes(5, wire_bytes(1, entry)));
}

void EventFile::record(const std::string& message) {
  const RecordFrame frame = record_frame(message);
  file_.write(frame.head + message + frame.tail);
}

}  // namespace pl

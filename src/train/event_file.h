// Event files that TensorBoard reads: records with masked CRC-32C around hand-encoded Event
// messages (tensorflow/core/util/event.proto, framework/summary.proto).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/append_file.h"

namespace pl {

// One bucket of a histogram: [left, right) and how many values lie in it.
struct Bucket {
  double left = 0, right = 0, count = 0;
};

class EventFile {
 public:
  // A new file in the folder, which is made if need be.
  void create(const std::string& folder);
  // Goes on with a file of the folder, cut to `bytes`; a new one when it is not there.
  void go_on(const std::string& folder, const std::string& name, Bytes bytes);
  bool is_open() const { return file_.is_open(); }
  void close() { file_.close(); }
  const std::string& name() const { return name_; }  // without the folder
  const std::string& path() const { return file_.path(); }
  Bytes size() const { return file_.size(); }

  void scalar(std::string_view tag, double value, int64_t step);
  void histogram(std::string_view tag, std::span<const Bucket> buckets, int64_t step);

 private:
  void value(std::string_view tag, std::string_view plugin, const std::string& tensor,
             int64_t step);
  void record(const std::string& message);

  AppendFile file_;
  std::string name_;
};

}  // namespace pl

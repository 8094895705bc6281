#include "data/pipeline/failure_log.h"

#include <algorithm>

namespace pl {
namespace {

struct Entry {
  int64_t before = 0;
  int64_t bytes = 0;  // of the message behind it
};

constexpr size_t kLongest = 4096;

}  // namespace

void FailureLog::add(int64_t before, const std::string& message) {
  const size_t length = std::min(message.size(), kLongest);
  const Entry entry{before, static_cast<int64_t>(length)};
  file_.write(&entry, sizeof(entry), end_);
  file_.write(message.data(), entry.bytes, end_ + static_cast<Bytes>(sizeof(entry)));
  end_ += static_cast<Bytes>(sizeof(entry)) + entry.bytes;
  ++count_;
}

std::optional<std::string> FailureLog::next(Cursor& cursor, int64_t element) const {
  if (cursor.at >= end_) return {};
  Entry entry;
  file_.read(&entry, sizeof(entry), cursor.at);
  if (entry.before != element) return {};
  std::string message(static_cast<size_t>(entry.bytes), '\0');
  file_.read(message.data(), entry.bytes, cursor.at + static_cast<Bytes>(sizeof(entry)));
  cursor.at += static_cast<Bytes>(sizeof(entry)) + entry.bytes;
  return message;
}

}  // namespace pl

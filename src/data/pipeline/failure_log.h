// FailureLog: the elements of a stream that failed, so that they fail again whenever the elements
// that were kept are read. In a file without a name: any number of them takes no memory.
#pragma once

#include <optional>
#include <string>

#include "base/growing_file.h"

namespace pl {

class FailureLog {
 public:
  // Where a reader stands.
  struct Cursor {
    ByteOffset at = 0;
  };

  FailureLog(const std::string& folder, const std::string& stage)
      : file_(folder, "[data] " + stage) {}
  // In front of element `before` of those that did not fail. Numbers do not fall.
  void add(int64_t before, const std::string& message);
  int64_t count() const { return count_; }
  Cursor end() const { return {end_}; }
  // The next failure, if it is in front of this element; the cursor moves behind it.
  std::optional<std::string> next(Cursor& cursor, int64_t element) const;

 private:
  GrowingFile file_;
  ByteOffset end_ = 0;
  int64_t count_ = 0;
};

}  // namespace pl

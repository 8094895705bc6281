// The bytes of one try as a file that readers can open by name, and what a reader may throw.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace pl::fuzz {

class InputFile {
 public:
  InputFile(const uint8_t* data, size_t bytes) : fd_(::memfd_create("input", 0)) {
    if (fd_ < 0 || ::write(fd_, data, bytes) != static_cast<ssize_t>(bytes)) std::abort();
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A reader either reads or throws DataError; any other exception ends the run.
template <class Read>
int expect_data_error(const Read& read) {
  try {
    read();
  } catch (const DataError&) {
  }
  return 0;
}

}  // namespace pl::fuzz

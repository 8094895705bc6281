// A file of what the calls of a model need and take on a device, so that `plan` can be asked about
// that device where it is not.
#pragma once

#include <memory>
#include <string>

#include "execute/kernel_book.h"

namespace pl {

struct CallFile {
  std::string machine;
  Bytes held = 0;  // of the device's memory before anything is reserved
  Bytes alignment = 256, granule = 1;
  std::map<std::string, KernelBook::Known> calls;
};

void write_calls(const std::string& path, const CallFile& file);
CallFile read_calls(const std::string& path);  // throws DataError

// A GPU without kernels and memory: it can be planned for.
std::unique_ptr<Backend> described_device(const CallFile& file);

}  // namespace pl

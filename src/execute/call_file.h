// A file of what the calls of a model need and take on a device, so that `plan` can be asked about
// that device where it is not.
#pragma once

#include <memory>
#include <string>

#include "execute/kernel_book.h"

namespace pl {

struct CallFile {
  std::string machine;
  std::string numerics;  // what decides bits there, beside kernels' keys
  bool deterministic = true;
  Bytes held = 0;  // of the device's memory before anything is reserved
  Bytes alignment = 256, granule = 1;
  std::map<std::string, KernelBook::Known> calls;
};

void write_calls(const std::string& path, const CallFile& file);
// Of the backend's device in the cache folder; "" where costs are not kept.
std::string calls_path(const KernelBook& book);
// Tells the book what the file has; nothing where it is not there or not to be trusted.
void know_calls(KernelBook& book, const std::string& path);
void keep_calls(const KernelBook& book, const std::string& path);  // if there is news
CallFile read_calls(const std::string& path);                      // throws DataError

// A GPU without kernels and memory: it can be planned for.
std::unique_ptr<Backend> described_device(const CallFile& file);

}  // namespace pl

// Has calls that change the disk fail while it lives.
#pragma once

#include <cerrno>
#include <functional>
#include <utility>

#include "base/disk.h"

namespace pl::test {

class DiskFaults : public DiskWatch {
 public:
  using Fault = std::function<int(const DiskCall&)>;  // the errno, or 0
  explicit DiskFaults(Fault fault) : fault_(std::move(fault)), scope_(*this) {}

  int64_t make(const DiskCall& call, const std::function<int64_t()>& system) override {
    const int error = fault_(call);
    if (error == 0) return system();
    errno = error;
    return -1;
  }

 private:
  Fault fault_;
  DiskWatchScope scope_;
};

}  // namespace pl::test

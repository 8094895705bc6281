// What the system can give this process, and what the process holds. Linux's own figures.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"

namespace pl {

// Room for further memory of this process. Unknown limits are left out.
struct HostRoom {
  Bytes available = 0;                 // MemAvailable of the machine
  std::optional<Bytes> cgroup;         // least room over this process's control groups
  std::optional<Bytes> address_space;  // RLIMIT_AS and RLIMIT_DATA
  Bytes least() const;
  std::string tightest() const;  // what sets `least`, in words
  // For what a device keeps here: half of it, or what was given; never more than there is.
  Bytes for_device(std::optional<Bytes> given) const;
};
HostRoom host_room();

Bytes process_resident();  // VmRSS
Bytes process_peak();      // VmHWM
Bytes total_memory();      // MemTotal

// One reservation of zeroed pages, given back to the system when destroyed.
class Reservation {
 public:
  Reservation() = default;
  // Throws DoesNotFit when the system refuses.
  explicit Reservation(Bytes bytes);
  Reservation(Reservation&& other) noexcept { swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Reservation();

  // Makes every page resident now, so that no later step can fail or stall on a page fault.
  void prefault() { prefault(bytes_); }
  void prefault(Bytes first);  // the first bytes only; what they hold stays
  // Gives the pages from `from` (rounded up to a page) back; they read as zero when used again.
  void discard(Bytes from);
  char* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  void swap(Reservation& other) noexcept;
  char* data_ = nullptr;  // aligned to a huge page
  Bytes bytes_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace pl

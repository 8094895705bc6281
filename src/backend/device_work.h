// What a device does beyond a Backend's kernels and copies: its work is timed, and bytes come in
// beside kernels.
#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"

namespace pl {

class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // Calls of the driver and of libraries are for the device that their thread used last: whoever
  // makes some on a thread of its own says which one it is. Calls of a Backend do so themselves.
  virtual void use() const {}
  virtual size_t preparing_threads() const { return 1; }  // that may prepare kernels at a time
  // Of all calls, when a plan is searched for; the rest is estimated by those that were timed.
  virtual double most_timing_ms() const { return 1500; }
  // Whether the kernel runs with what those who prepare others need too. As long as the answer to
  // alone_with() lives it is this thread's alone: held while such a kernel runs beside them.
  virtual bool shares(const Kernel&) const { return false; }
  virtual std::shared_ptr<void> alone_with(const Kernel&) { return nullptr; }
  // How long the device is busy with what `work` asks for; waits for it.
  virtual double time_ms(const std::function<void()>& work) = 0;

  // Copies from pinned host memory, in an order of their own. Kernels and copies that are asked for
  // behind a wait begin when what the others were asked for before it is done.
  virtual void copy_beside(void* to, const void* from, Bytes bytes) = 0;
  virtual void wait_for_copies() = 0;     // kernels do
  virtual void copies_wait() = 0;         // for kernels
  virtual void synchronize_copies() = 0;  // the host waits for them

  // Values that leave for pinned host memory and come back, beside kernels: in each direction one
  // after another, each behind the kernels that were asked for before it. `stay` names the copy to
  // whoever waits for it. All of it may be recorded, and must be joined before the recording ends.
  virtual void send_away(size_t stay, void* host, const void* from, Bytes bytes) = 0;
  virtual void bring_back(size_t stay, void* to, const void* host, Bytes bytes) = 0;
  virtual void wait_away(size_t stay) = 0;  // kernels wait until it has left
  virtual void wait_back(size_t stay) = 0;  // until it is back
  virtual void join_stays() = 0;            // until nothing is on its way
};

// Null: the backend has none.
inline DeviceWork* device_work(Backend& backend) { return dynamic_cast<DeviceWork*>(&backend); }

}  // namespace pl

// What the rest of the engine knows of a device: how many threads work on it, how addresses are
// aligned, how bytes get there and back, and the two phases of every kernel.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/device.h"

namespace pl {

// One reservation of a device's memory, or of host memory that it copies from and to; given back
// when destroyed.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 protected:
  DeviceMemory() = default;
  char* data_ = nullptr;
  Bytes bytes_ = 0;
};

// Work that was recorded once and is then launched as a whole.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

// A device's work failed while nobody waited for it. The call that hears of it is not to blame, but
// something that was asked of the device before; the device answers this process nothing else from
// then on.
class DeviceFault : public BackendError {
 public:
  using BackendError::BackendError;
};
// PLIMSOLL_SYNC=1: whoever runs kernels on a device waits behind each, so that a failure is the
// last one's.
bool waits_behind_each_op();
inline constexpr const char* kFaultRemedy =
    "; run it again with PLIMSOLL_SYNC=1 in the environment, which waits behind each op and names "
    "the one";

struct DeviceKernels;  // op/device_kernels.h

class Backend {
 public:
  virtual ~Backend() = default;
  Device device() const { return device_; }
  int threads() const { return threads_; }
  virtual std::string machine() const { return ""; }  // in words: what decides how fast it is
  // What decides bits of all kernels, beside their own keys; a device's sums depend on its size.
  virtual std::string numerics() const { return ""; }
  virtual bool narrow_simd() const { return false; }  // the library runs without its widest vectors
  Bytes alignment() const { return alignment_; }      // every grant is a multiple of it

  // Whether kernels' memory is the host's. Where it is not, bytes come and go through what follows,
  // in order with kernels: what a call names must stay until synchronize() returns, and a failure
  // of earlier work may surface in a later call. Defaults: the host's memory, at once.
  virtual bool on_host() const { return true; }
  // The kernels of a device whose code is not part of the program; null: ops' records list them.
  virtual const DeviceKernels* kernels() const { return nullptr; }
  // Of a device's own memory, as its driver counts it. What this process holds is more than what it
  // reserved: context, code, recorded work, libraries.
  virtual Bytes held() const { return 0; }
  virtual Bytes free() const { return 0; }
  // Who else holds of it, to stand behind a figure: " (process 7 holds 2.0 GiB)"; empty: nobody, or
  // nobody who is known.
  virtual std::string holders() const { return ""; }
  virtual Bytes granule() const { return 1; }  // reservations are rounded up to it
  virtual void copy_in(void* to, const void* from, Bytes bytes);   // from the host
  virtual void copy_out(void* to, const void* from, Bytes bytes);  // to the host
  virtual void copy(void* to, const void* from, Bytes bytes);      // within the device
  virtual void zero(void* at, Bytes bytes);
  // to[i] = from[i] + add[i]: a few words on the device, such as a loop trip's parameters.
  virtual void add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add);
  virtual void synchronize() {}
  // Zeroed. Throws DoesNotFit when there is not so much.
  virtual std::unique_ptr<DeviceMemory> reserve(Bytes bytes);
  virtual std::unique_ptr<DeviceMemory> reserve_staging(Bytes bytes);  // host's; copied fast
  // Runs nothing, but remembers what `work` asked the device to do. Null: the device does not do
  // such things, and `work` was not called.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work);
  // The same device, with its memory and its one order of work, whose kernels are chosen otherwise:
  // all that give the same bits again, or the fastest. Null: it has no such choice.
  virtual std::unique_ptr<Backend> choosing(bool deterministic);

 protected:
  Backend(Device device, int threads, Bytes alignment)
      : device_(device), threads_(threads), alignment_(alignment) {}

 private:
  Device device_;
  int threads_;
  Bytes alignment_;
};

// A prepared kernel: shapes are known, the algorithm is fixed, nothing is left to allocate. `run`
// may be called any number of times with other pointers, and never allocates.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(void* const* in, void* const* out, void* workspace) = 0;

  Bytes workspace_bytes = 0;
  std::string key;      // numerics key: what decides the bits of the result
  std::string library;  // the part of a library whose code it runs; empty: none
  Bytes footprint = 0;  // upper bound of the memory the prepared object itself holds
  Bytes transient =
      0;  // bound of what the library takes from the heap while it runs, and gives back
};

// Scoped choice of the backend that eager ops use when no operand brings one. Thread-local.
class BackendScope {
 public:
  explicit BackendScope(Backend& backend);
  ~BackendScope();
  BackendScope(const BackendScope&) = delete;
  BackendScope& operator=(const BackendScope&) = delete;
  static Backend& current();  // throws UserError when there is none

 private:
  Backend* previous_;
};

}  // namespace pl

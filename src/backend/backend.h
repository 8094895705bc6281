// What the rest of the engine knows of a device: how many threads work on it, how addresses are
// aligned, and the two phases of every kernel.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "tensor/device.h"

namespace pl {

class Backend {
 public:
  virtual ~Backend() = default;
  Device device() const { return device_; }
  int threads() const { return threads_; }
  virtual std::string machine() const { return ""; }  // in words: what decides how fast it is
  virtual bool narrow_simd() const { return false; }  // the library runs without its widest vectors
  Bytes alignment() const { return alignment_; }      // every grant is a multiple of it

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

// DeviceSpace: memory that is not the host's, as values see it: pages of it, and copies from and to
// it. What it is made of is backend/devices.h's business.
#pragma once

#include <string>

#include "base/bytes.h"

namespace pl {

class Backend;  // backend/backend.h; here only an opaque tag

class DeviceSpace {
 public:
  virtual ~DeviceSpace() = default;
  DeviceSpace(const DeviceSpace&) = delete;
  DeviceSpace& operator=(const DeviceSpace&) = delete;

  Backend& backend() const { return backend_; }
  // The same device for kernels that are chosen otherwise, where it has a choice.
  virtual Backend& backend_for(bool /*deterministic*/) { return backend_; }
  const std::string& name() const { return name_; }  // "cuda:0"

  virtual Bytes page() const = 0;       // what it is given in
  virtual Bytes alignment() const = 0;  // of a value, at least
  virtual void* map(Bytes bytes) = 0;   // pages; null: there are none
  virtual void unmap(void* data, Bytes bytes) noexcept = 0;
  // "1.0 GiB are free (process 7 holds 2.0 GiB)", for whoever got none; empty: it does not answer.
  virtual std::string room() const noexcept { return ""; }

  // In order with the device's kernels. `read` returns when the bytes are there; what `write` reads
  // may change when it returns.
  virtual void read(void* to, const void* from, Bytes bytes) = 0;   // to the host
  virtual void write(void* to, const void* from, Bytes bytes) = 0;  // from the host
  virtual void copy(void* to, const void* from, Bytes bytes) = 0;   // within

 protected:
  DeviceSpace(Backend& backend, std::string name) : backend_(backend), name_(std::move(name)) {}

 private:
  Backend& backend_;
  std::string name_;
};

}  // namespace pl

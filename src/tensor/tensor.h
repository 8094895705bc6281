// Tensor: a cheap handle to either a value (bytes in a Buffer) or a symbol (a value id in a Graph
// that is being traced). Dense, row-major; reshaping is free. Ops on it live in op/.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/device.h"
#include "tensor/shape.h"
#include "tensor/value_memory.h"

namespace pl {

class Recorder;  // op/recorder.h; here only an opaque tag of the graph being traced
using ValueId = int;

// Bytes of an eager value, aligned to a cache line, freed with the last handle. They lie in the
// ValueMemory in scope, or on the heap without one; or in a device's memory.
class Buffer {
 public:
  explicit Buffer(Bytes bytes) : Buffer(bytes, MemoryScope::current()) {}
  Buffer(Bytes bytes, std::shared_ptr<ValueMemory> memory);  // null: the heap
  // Bytes that lie in someone else's memory, which `keeper` keeps alive; `space`: a device's.
  Buffer(void* data, Bytes bytes, std::shared_ptr<const void> keeper,
         std::shared_ptr<DeviceSpace> space = nullptr);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  void* data() { return data_; }  // where it lies, on the host or on its device
  Bytes bytes() const { return bytes_; }
  // Whose memory it lies in; null: the host's.
  const std::shared_ptr<DeviceSpace>& space() const { return space_; }
  // To be read by the host: the bytes themselves, or a copy of a device's, which is made when it is
  // first asked for and, of a variable, anew each time.
  void* host();
  std::shared_ptr<Buffer> another() const;  // as large, in the same memory

  // A variable's: ops that make the next version of an operand write it here.
  bool is_variable() const { return variable_; }
  void set_variable(bool variable) { variable_ = variable; }
  // Moves the bytes to a place of its own on the host, so that whoever has the other place may
  // write there.
  void detach();

 private:
  void* data_ = nullptr;
  Bytes bytes_ = 0;
  ValueMemory::Block block_;
  std::shared_ptr<ValueMemory> memory_;  // null: the heap, or someone else's
  std::shared_ptr<const void> keeper_;   // of someone else's
  std::shared_ptr<DeviceSpace> space_;
  std::unique_ptr<Buffer> mirror_;  // of a device's bytes, on the host
  bool variable_ = false;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Meta meta);  // an uninitialised value
  Tensor(Meta meta, std::shared_ptr<Buffer> buffer);
  Tensor(Meta meta, Recorder* recorder, ValueId id)
      : meta_(std::move(meta)), recorder_(recorder), identity_(id) {}

  bool defined() const { return buffer_ || recorder_; }
  bool is_symbol() const { return recorder_ != nullptr; }
  const Meta& meta() const { return meta_; }
  const Shape& shape() const { return meta_.shape; }
  Dtype dtype() const { return meta_.dtype; }

  Recorder* recorder() const { return recorder_; }                // symbols only
  ValueId id() const { return static_cast<ValueId>(identity_); }  // symbols only
  // The same for copies of a handle, different for everything else: a symbol's id in its graph; of
  // values a number that no other value of the process ever had.
  int64_t identity() const { return identity_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  // Values only; throws UserError on a symbol. Of a value on a device: a copy to be read.
  void* data() const;
  void* place() const { return buffer_->data(); }  // values only: where it lies
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }

 private:
  Meta meta_;
  std::shared_ptr<Buffer> buffer_;
  Recorder* recorder_ = nullptr;
  int64_t identity_ = -1;
};

using Tensors = std::vector<Tensor>;

}  // namespace pl

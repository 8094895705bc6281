// Tensor: a cheap handle to either a value (bytes in a Buffer) or a symbol (a value id in a Graph
// that is being traced). Dense, row-major; reshaping is free. Ops on it live in op/.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/device.h"
#include "tensor/shape.h"

namespace pl {

class Recorder;  // op/recorder.h; here only an opaque tag of the graph being traced
using ValueId = int;

// Bytes of an eager value, aligned to a cache line, freed with the last handle.
class Buffer {
 public:
  explicit Buffer(Bytes bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  void* data() { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  Bytes bytes_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Meta meta);  // an uninitialised value
  Tensor(Meta meta, std::shared_ptr<Buffer> buffer)
      : meta_(std::move(meta)), buffer_(std::move(buffer)) {}
  Tensor(Meta meta, Recorder* recorder, ValueId id)
      : meta_(std::move(meta)), recorder_(recorder), id_(id) {}

  bool defined() const { return buffer_ || recorder_; }
  bool is_symbol() const { return recorder_ != nullptr; }
  const Meta& meta() const { return meta_; }
  const Shape& shape() const { return meta_.shape; }
  Dtype dtype() const { return meta_.dtype; }

  Recorder* recorder() const { return recorder_; }  // symbols only
  ValueId id() const { return id_; }                // symbols only
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  void* data() const;  // values only; throws UserError on a symbol
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }

 private:
  Meta meta_;
  std::shared_ptr<Buffer> buffer_;
  Recorder* recorder_ = nullptr;
  ValueId id_ = -1;
};

using Tensors = std::vector<Tensor>;

}  // namespace pl

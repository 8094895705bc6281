#include "tensor/tensor.h"

#include <cstdlib>
#include <new>

#include "base/error.h"

namespace pl {

inline constexpr Bytes kBufferAlignment = 64;

Buffer::Buffer(Bytes bytes) : bytes_(bytes) {
  const Bytes size = align_up(bytes > 0 ? bytes : 1, kBufferAlignment);
  data_ = std::aligned_alloc(kBufferAlignment, static_cast<size_t>(size));
  if (!data_)
    throw DoesNotFit("[tensor] expected " + format_bytes(size) + " of free memory for a value");
}

Buffer::~Buffer() { std::free(data_); }

Tensor::Tensor(Meta meta)
    : meta_(std::move(meta)), buffer_(std::make_shared<Buffer>(meta_.bytes())) {}

void* Tensor::data() const {
  if (!buffer_)
    throw UserError("[tensor] expected a value, received " +
                    std::string(recorder_ ? "a symbol of a traced function" : "an empty tensor") +
                    "; only values have data");
  return buffer_->data();
}

}  // namespace pl

#include "tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pl {

inline constexpr Bytes kBufferAlignment = 64;

namespace {

int64_t next_identity() {
  static std::atomic<int64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Buffer::Buffer(Bytes bytes) : bytes_(bytes), memory_(MemoryScope::current()) {
  const Bytes size = align_up(std::max<Bytes>(bytes_, 1), kBufferAlignment);
  if (memory_) {
    block_ = memory_->take(size);
    data_ = block_.data;
    return;
  }
  data_ = std::aligned_alloc(kBufferAlignment, static_cast<size_t>(size));
  if (!data_)
    throw DoesNotFit("[tensor] expected " + format_bytes(size) + " of free memory for a value");
}

Buffer::Buffer(void* data, Bytes bytes, std::shared_ptr<const void> keeper)
    : data_(data), bytes_(bytes), keeper_(std::move(keeper)) {}

void Buffer::detach() {
  check(keeper_ != nullptr, "only bytes in someone else's memory are detached");
  Buffer copy(bytes_);
  std::memcpy(copy.data_, data_, static_cast<size_t>(bytes_));
  std::swap(data_, copy.data_);
  std::swap(block_, copy.block_);
  std::swap(memory_, copy.memory_);
  std::swap(keeper_, copy.keeper_);
  variable_ = false;
}

Buffer::~Buffer() {
  if (memory_)
    memory_->give(block_, align_up(std::max<Bytes>(bytes_, 1), kBufferAlignment));
  else if (!keeper_)
    std::free(data_);
}

Tensor::Tensor(Meta meta)
    : meta_(std::move(meta)),
      buffer_(std::make_shared<Buffer>(meta_.bytes())),
      identity_(next_identity()) {}

Tensor::Tensor(Meta meta, std::shared_ptr<Buffer> buffer)
    : meta_(std::move(meta)), buffer_(std::move(buffer)), identity_(next_identity()) {}

void* Tensor::data() const {
  if (!buffer_)
    throw UserError("[tensor] expected a value, received " +
                    std::string(recorder_ ? "a symbol of a traced function" : "an empty tensor") +
                    "; only values have data");
  return buffer_->data();
}

}  // namespace pl

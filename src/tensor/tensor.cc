#include "tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
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

Buffer::Buffer(Bytes bytes, std::shared_ptr<ValueMemory> memory)
    : bytes_(bytes), memory_(std::move(memory)) {
  const Bytes size = align_up(std::max<Bytes>(bytes_, 1), kBufferAlignment);
  if (memory_) {
    space_ = memory_->space();
    block_ = memory_->take(size);
    data_ = block_.data;
    return;
  }
  data_ = std::aligned_alloc(kBufferAlignment, static_cast<size_t>(size));
  if (!data_)
    throw DoesNotFit("[tensor] expected " + format_bytes(size) + " of free memory for a value");
}

Buffer::Buffer(void* data, Bytes bytes, std::shared_ptr<const void> keeper,
               std::shared_ptr<DeviceSpace> space)
    : data_(data), bytes_(bytes), keeper_(std::move(keeper)), space_(std::move(space)) {}

std::shared_ptr<Buffer> Buffer::another() const {
  if (!space_) return std::make_shared<Buffer>(bytes_);
  check(memory_ != nullptr, "a device's memory for values");
  return std::make_shared<Buffer>(bytes_, memory_);
}

void* Buffer::host() {
  if (!space_) return data_;
  static std::mutex one_at_a_time;  // two threads may read a value
  const std::lock_guard lock(one_at_a_time);
  if (mirror_ && !variable_) return mirror_->data_;
  auto copy = mirror_ ? std::move(mirror_) : std::make_unique<Buffer>(bytes_);
  space_->read(copy->data_, data_, bytes_);
  mirror_ = std::move(copy);
  return mirror_->data_;
}

void Buffer::detach() {
  check(keeper_ != nullptr, "only bytes in someone else's memory are detached");
  Buffer copy(bytes_);
  std::memcpy(copy.data_, host(), static_cast<size_t>(bytes_));
  mirror_.reset();
  space_.reset();
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
  return buffer_->host();
}

}  // namespace pl

#include "backend/backend.h"

#include <cstdlib>
#include <cstring>

#include "backend/backend_in_scope.h"
#include "base/error.h"

namespace pl {
namespace {
thread_local Backend* current_backend = nullptr;

class HostBlock final : public DeviceMemory {
 public:
  HostBlock(Bytes bytes, Bytes alignment) {
    bytes_ = align_up(bytes, alignment);
    data_ = static_cast<char*>(
        std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(bytes_)));
    if (!data_ && bytes_ > 0)
      throw DoesNotFit("[backend] expected " + format_bytes(bytes) + ", received none");
    if (bytes_ > 0) std::memset(data_, 0, static_cast<size_t>(bytes_));
  }
  ~HostBlock() override { std::free(data_); }
};

}  // namespace

void Backend::copy_in(void* to, const void* from, Bytes bytes) { copy(to, from, bytes); }
void Backend::copy_out(void* to, const void* from, Bytes bytes) { copy(to, from, bytes); }
void Backend::copy(void* to, const void* from, Bytes bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void Backend::zero(void* at, Bytes bytes) {
  if (bytes > 0) std::memset(at, 0, static_cast<size_t>(bytes));
}
void Backend::add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add) {
  for (size_t i = 0; i < add.size(); ++i) to[i] = from[i] + add[i];
}
std::unique_ptr<DeviceMemory> Backend::reserve(Bytes bytes) {
  return std::make_unique<HostBlock>(bytes, alignment_);
}
std::unique_ptr<DeviceMemory> Backend::reserve_staging(Bytes bytes) {
  return std::make_unique<HostBlock>(bytes, alignment_);
}
std::unique_ptr<Recording> Backend::record(const std::function<void()>&) { return nullptr; }
std::unique_ptr<Backend> Backend::choosing(bool) { return nullptr; }

bool waits_behind_each_op() {
  const char* value = std::getenv("PLIMSOLL_SYNC");
  return value && *value && std::strcmp(value, "0") != 0;
}

BackendScope::BackendScope(Backend& backend) : previous_(current_backend) {
  current_backend = &backend;
}
BackendScope::~BackendScope() { current_backend = previous_; }

Backend& BackendScope::current() {
  if (!current_backend) throw InternalError("[backend] expected a backend in scope, received none");
  return *current_backend;
}

Backend* backend_in_scope() { return current_backend; }

}  // namespace pl

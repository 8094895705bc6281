#include "backend/backend.h"

#include "base/error.h"

namespace pl {
namespace {
thread_local Backend* current_backend = nullptr;
}

BackendScope::BackendScope(Backend& backend) : previous_(current_backend) {
  current_backend = &backend;
}
BackendScope::~BackendScope() { current_backend = previous_; }

Backend& BackendScope::current() {
  if (!current_backend)
    throw UserError(
        "[backend] expected a BackendScope around eager ops, received none; "
        "create a CpuBackend and put it in scope");
  return *current_backend;
}

}  // namespace pl

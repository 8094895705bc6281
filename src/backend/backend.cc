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
        "[backend] expected a Runtime that lives while ops run on values, received none; "
        "write pl::Runtime runtime; before them");
  return *current_backend;
}

}  // namespace pl

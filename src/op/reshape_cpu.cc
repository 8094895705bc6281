// CPU kernel of reshape, for the case that the result cannot share the operand's bytes.
#include <cstring>

#include "op/kernel.h"
#include "op/reshape.h"

namespace pl::cpu {

std::unique_ptr<Kernel> reshape_reference(const PrepareCall& call) {
  const auto bytes = static_cast<size_t>(call.out[0].bytes());
  return make_kernel([bytes](void* const* in, void* const* out, void*) {
    if (bytes > 0 && in[0] != out[0]) std::memcpy(out[0], in[0], bytes);
  });
}

}  // namespace pl::cpu

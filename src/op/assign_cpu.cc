#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/assign.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> assign_reference(const PrepareCall& call) {
  const Bytes total = call.in[0].bytes();
  const int threads = call.backend.threads();
  return make_kernel([total, threads](void* const* in, void* const* out, void*) {
    const char* from = static_cast<const char*>(in[1]);
    char* to = static_cast<char*>(out[0]);
    if (from == to) return;
    parallel_ranges(threads, total, total / 4, [&](Bytes begin, Bytes end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  });
}

}  // namespace pl::cpu

#include "backend/cpu/cpu_backend.h"

#include <omp.h>
#include <sched.h>

#include "backend/cpu/onednn.h"
#include "base/error.h"

namespace pl {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

namespace {

int checked_threads(int threads) {
  if (threads < 0 || threads > 1024)
    throw UserError("[backend] --threads: expected 1 to 1024, received " + std::to_string(threads));
  return threads == 0 ? available_cores() : threads;
}

}  // namespace

CpuBackend::CpuBackend(int threads)
    : Backend({DeviceKind::cpu, 0}, checked_threads(threads), kAlignment) {
  use();
#pragma omp parallel
  {
    // Starts the team now, so that its stacks are there before anything is measured.
  }
  // We hold the primitives ourselves; a second copy in the library's cache would be hidden memory.
  onednn_check(dnnl_set_primitive_cache_capacity(0), "switch off the primitive cache");
  onednn_check(dnnl_engine_create(&engine_, dnnl_cpu, 0), "create the engine");
  onednn_check(dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags),
               "create the stream");
}

void CpuBackend::use() const {
  omp_set_dynamic(0);
  omp_set_num_threads(threads());
}

CpuBackend::~CpuBackend() {
  dnnl_stream_destroy(stream_);
  dnnl_engine_destroy(engine_);
}

}  // namespace pl

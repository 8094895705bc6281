#include "backend/cpu/cpu_backend.h"

#include <fcntl.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cpu/code_pages.h"
#include "backend/cpu/host_memory.h"
#include "backend/cpu/onednn.h"
#include "base/error.h"
#include "base/processor.h"

namespace pl {

// Address space that preparing kernels takes besides thread stacks.
constexpr Bytes kLibraryRoom = 48 * kMiB;

namespace {

int checked_threads(int threads) {
  if (threads < 0 || threads > 1024)
    throw UserError("[backend] --threads: expected 1 to 1024, received " + std::to_string(threads));
  return threads == 0 ? default_threads() : threads;
}

// libgomp ends the process when a thread cannot be made, so the room for their stacks is asked for
// before. Only a limit on address space makes it fail in practice.
void require_thread_stacks(int threads) {
  const auto room = host_room().address_space;
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const Bytes each =
      stack.rlim_cur == RLIM_INFINITY ? 2 * kMiB : static_cast<Bytes>(stack.rlim_cur);
  const Bytes need = each * (threads - 1) + kLibraryRoom;
  if (room && need > *room)
    throw DoesNotFit("[backend] expected " + format_bytes(need) + " of address space for " +
                     std::to_string(threads) +
                     " threads and the libraries, the process's limit leaves " +
                     format_bytes(*room) + "; raise ulimit -v and -d, or lower --threads");
}

// Of this thread: its team stays.
thread_local int team_so_far = 1;

// Nor does it say so when the system makes no further threads. These have a thread's usual stack,
// which the team's take over.
void require_threads(int count) {
  std::vector<std::thread> others;
  std::latch end(1);
  int missing = 0;
  try {
    while (static_cast<int>(others.size()) < count) others.emplace_back([&end] { end.wait(); });
  } catch (const std::system_error&) {
    missing = count - static_cast<int>(others.size());
  }
  end.count_down();
  for (std::thread& other : others) other.join();
  if (missing > 0)
    throw BackendError("[backend] expected " + std::to_string(count) +
                       " threads beside the first, the system made " +
                       std::to_string(count - missing) + kThreadRemedy);
}

}  // namespace

CpuBackend::CpuBackend(int threads)
    : Backend({DeviceKind::cpu, 0}, checked_threads(threads), kAlignment) {
  require_thread_stacks(this->threads());
  hold_code_by_page();
  limit_simd();
  onednn_isa();  // before the library looks at the processor
  use();
  if (this->threads() > team_so_far) require_threads(this->threads() - 1);
  // Starts the team now, so that its stacks are there before anything is measured. Kernels are
  // built for this many threads and would compute something else with fewer.
  int team = 0;
#pragma omp parallel
  {
#pragma omp single
    team = omp_get_num_threads();
  }
  if (team != this->threads())
    throw UserError("[backend] --threads: expected a team of " + std::to_string(this->threads()) +
                    ", OpenMP gave " + std::to_string(team) +
                    "; unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or ask for fewer threads");
  team_so_far = team;
  dnnl_set_verbose(0);  // it would print among our JSON
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

std::string CpuBackend::machine() const {
  // The first processor's lines are enough; a stream would bring locales into memory.
  std::string info(4096, '\0');
  const int fd = ::open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? ::read(fd, info.data(), info.size()) : 0;
  if (fd >= 0) ::close(fd);
  info.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  std::string name = "unknown processor";
  if (const size_t at = info.find("model name"); at != info.npos)
    if (const size_t start = info.find(": ", at); start != info.npos)
      name = info.substr(start + 2, info.find('\n', start) - start - 2);
  return name + ", isa " + std::to_string(static_cast<int>(onednn_isa()));
}

std::string CpuBackend::numerics() const {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

bool CpuBackend::narrow_simd() const {
  return (onednn_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core;
}

CpuBackend::~CpuBackend() {
  dnnl_stream_destroy(stream_);
  dnnl_engine_destroy(engine_);
}

}  // namespace pl

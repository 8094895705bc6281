#include "base/processor.h"

#include <hwy/targets.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/cache_folder.h"
#include "base/error.h"

namespace pl {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int default_threads() {
  const std::string text = environment("PLIMSOLL_THREADS");
  if (text.empty()) return available_cores();
  int threads = 0;
  const char* end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, threads);
      read.ec != std::errc() || read.ptr != end || threads < 1 || threads > 1024)
    throw UserError("[environment] PLIMSOLL_THREADS: expected 1 to 1024, received '" + text + "'");
  return threads;
}

namespace {

std::optional<SimdLevel> read_simd_limit() {
  constexpr const char* kNames[] = {"sse4", "avx2", "avx512", "bf16", "amx"};
  const std::string text = environment("PLIMSOLL_SIMD");
  if (text.empty()) return std::nullopt;
  const auto* const name = std::find(std::begin(kNames), std::end(kNames), text);
  if (name == std::end(kNames))
    throw UserError(
        "[environment] PLIMSOLL_SIMD: expected amx, bf16, avx512, avx2 or sse4, received '" + text +
        "'");
  return static_cast<SimdLevel>(name - std::begin(kNames));
}

// Highway numbers its targets newest first, so those below a target's bit are newer.
bool hide_newer_targets() {
  require_sse4(hwy::SupportedTargets());
  const std::optional<SimdLevel> limit = simd_limit();
  if (!limit) return false;
  const int64_t newest = *limit == SimdLevel::sse4   ? HWY_SSE4
                         : *limit == SimdLevel::avx2 ? HWY_AVX2
                                                     : HWY_AVX3;
  hwy::DisableTargets(newest - 1);
  return true;
}

}  // namespace

std::optional<SimdLevel> simd_limit() {
  static const std::optional<SimdLevel> limit = read_simd_limit();
  return limit;
}

void require_sse4(int64_t targets) {
  // Newer targets have lower bits, and each of them includes this one.
  if (targets & (2 * int64_t{HWY_SSE4} - 1)) return;
  throw BackendError(
      "[processor] expected SSE4.2, AES and PCLMUL, which x86-64 processors have had since 2011, "
      "received one without them; give a virtual machine the processor of its host");
}

void limit_simd() { [[maybe_unused]] static const bool limited = hide_newer_targets(); }

}  // namespace pl

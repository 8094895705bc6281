// What this process uses of the processor: its cores, and how new the instructions may be.
#pragma once

#include <cstdint>
#include <optional>

namespace pl {

int available_cores();  // that this process may run on
// How many threads compute when nobody says: $PLIMSOLL_THREADS, else the cores. Throws UserError
// unless it is in [1, 1024].
int default_threads();

// Names of $PLIMSOLL_SIMD, oldest first.
enum class SimdLevel { sse4, avx2, avx512, bf16, amx };
// $PLIMSOLL_SIMD hides what is newer than one level, so that a machine computes as an older one
// does. Read once; nothing: all that the processor has. Throws UserError for any other word.
std::optional<SimdLevel> simd_limit();
// Hides those instructions from the engine's own kernels. Who runs such kernels calls this before:
// backends and image readers do. Throws BackendError where the processor cannot run any of them.
void limit_simd();
// The same check, of a processor with these of Highway's targets.
void require_sse4(int64_t targets);

}  // namespace pl

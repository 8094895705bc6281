// What `plimsoll --help` says around the list of commands.
#pragma once

namespace pl {

inline constexpr const char* kAbout =
    "Plimsoll trains neural networks in exactly the memory that it planned before the first "
    "step.\n\n"
    "  plimsoll plan mnist-cnn --batch 256 --memory 128MiB    what will training use, and does "
    "it fit?\n"
    "  plimsoll train mnist-cnn --data fashion-mnist --epochs 5 --batch 64 --memory 128MiB\n"
    "  plimsoll models                                        what can be trained\n"
    "  plimsoll bench                                         how fast is it here\n"
    "  plimsoll data photos --memory 64MiB                    how fast do the data come\n\n"
    "Exit codes: 0 ok, 2 bad usage or input, 3 does not fit, 1 anything else.";

inline constexpr const char* kEnvironment =
    "Environment:\n"
    "  PLIMSOLL_CACHE              folder for what is kept between runs [$XDG_CACHE_HOME/plimsoll, "
    "~/.cache/plimsoll]\n"
    "  PLIMSOLL_COSTS=nominal      plan with the times of no machine in particular: the same plan "
    "everywhere\n"
    "  PLIMSOLL_THREADS=N          the default of --threads, instead of all cores\n"
    "  PLIMSOLL_SIMD=LEVEL         amx, bf16, avx512, avx2 or sse4: use this and nothing newer, "
    "as an\n"
    "                              older processor does\n"
    "  PLIMSOLL_SYNC=1             on a GPU, wait for every op, so that one that fails is named\n"
    "  PLIMSOLL_CUDA_LIBRARY       where libplimsoll_cuda.so is, if not beside the program\n"
    "  NO_COLOR                    no colours";

}  // namespace pl

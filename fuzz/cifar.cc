// CIFAR's records: of any length, with any labels.
#include "data/cifar.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    for (const auto kind : {pl::CifarKind::cifar10, pl::CifarKind::cifar100_coarse}) {
      if (bytes % 3073 != 0 && kind == pl::CifarKind::cifar10) continue;
      const pl::CifarFiles files({input.path()}, kind);
      uint8_t pixels[32 * 32 * 3];
      for (int64_t i = 0; i < files.size(); ++i) files.read(i, pixels);
    }
  });
}

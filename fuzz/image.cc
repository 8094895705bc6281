// JPEG and PNG, told apart by their first bytes, within a bounded scratch.
#include "data/image/image.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    uint8_t pixels[16 * 16 * 3];
    // All ways of decoding: whole, as planes, as means of blocks.
    const int64_t size = bytes % 3 == 0 ? 1 : bytes % 3 == 1 ? 5 : 16;
    pl::decode_image(input.path(), {.size = {size, size}}, pixels);
  });
}

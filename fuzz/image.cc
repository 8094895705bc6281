// JPEG and PNG, told apart by their first bytes, within a bounded scratch.
#include "data/image/image.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    uint8_t pixels[16 * 16 * 3];
    pl::decode_image(input.path(), {.size = {16, 16}}, pixels);
  });
}

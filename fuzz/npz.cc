// NumPy's archives with the arrays x and y.
#include "data/npz.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    const pl::NpzFile file(input.path());
    for (const std::string& name : file.names()) file.open(name);
  });
}

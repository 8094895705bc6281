// Weights: every tensor lies in the file.
#include "data/safetensors.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    const pl::SafetensorsFile file(input.path());
    for (const auto& entry : file.entries()) {
      std::string content(static_cast<size_t>(entry.bytes), '\0');
      file.read(entry, content.data(), entry.bytes);
    }
  });
}

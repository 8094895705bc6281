// JSON: what is read can be printed and read again.
#include "base/json.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::Json json =
        pl::parse_json(std::string(reinterpret_cast<const char*>(data), bytes), "input");
    if (pl::parse_json(json.dump(), "printed") != json) std::abort();
  });
}

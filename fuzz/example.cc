// tf.train.Example: what is read can be written and read again.
#include "data/example.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const std::string_view message(reinterpret_cast<const char*>(data), bytes);
    const pl::Example example = pl::parse_example(message, "input");
    const std::string written = pl::serialize_example(example);
    if (pl::serialize_example(pl::parse_example(written, "again")) != written) std::abort();
  });
}

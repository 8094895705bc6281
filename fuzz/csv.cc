// Tables: every row is as wide as the first.
#include "data/csv.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    pl::CsvReader reader(input.path(), {.max_row_bytes = 4096});
    std::vector<std::string_view> fields;
    while (reader.next(fields))
      if (fields.size() != reader.width()) std::abort();
  });
}

// Snapshots of pipelines: index and elements. The hashes keep most of what a fuzzer makes out, so the
// first byte says how many hashes of the file are made right again.
#include "data/pipeline/element_file.h"

#include "base/hash.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    static const pl::ElementSpec spec{{{"x", pl::Dtype::int64, pl::Shape{pl::kUnknown, 2}},
                                       {"y", pl::Dtype::uint8, pl::Shape()}}};
    constexpr size_t kFooter = 56, kIndexHash = 32, kHash = 40;
    if (bytes < 2) return;
    std::string file(reinterpret_cast<const char*>(data) + 1, bytes - 1);
    if (data[0] % 2 == 1 && file.size() >= kFooter + 16) {
      const size_t footer = file.size() - kFooter;
      uint64_t index_at = 0;
      file.copy(reinterpret_cast<char*>(&index_at), 8, footer + 16);
      if (index_at <= footer) {
        const uint64_t hash = pl::xxh3(file.data() + index_at, footer - index_at);
        file.replace(footer + kIndexHash, 8, reinterpret_cast<const char*>(&hash), 8);
      }
      const uint64_t hash = pl::xxh3(file.data() + footer, kHash);
      file.replace(footer + kHash, 8, reinterpret_cast<const char*>(&hash), 8);
    }
    const pl::fuzz::InputFile input(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    const auto whole = pl::ElementFile::open(input.path(), spec, 7);
    for (int64_t i = 0; i < whole->count() && i < 64; ++i) {
      try {
        whole->read(i);
      } catch (const pl::DataError&) {
      }
    }
  });
}

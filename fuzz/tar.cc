// Tar archives: what the index says lies in the file.
#include "data/tar.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    const pl::File file = pl::File::open(input.path());
    // What is refused is left out, and all others lie in the file.
    const std::vector<pl::TarEntry> entries = pl::index_tar(file, pl::OnError::skip);
    for (const pl::TarEntry& entry : entries) {
      std::string content(static_cast<size_t>(entry.bytes), '\0');
      file.pread_exact(content.data(), entry.bytes, entry.at);
    }
    pl::group_tar(entries, "input", pl::OnError::skip);
    pl::group_tar(pl::index_tar(file), "input");
  });
}

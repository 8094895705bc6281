// Merges: whatever was learned, text comes back from its tokens.
#include "data/bpe.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    const auto tokenizer = pl::BpeTokenizer::load(input.path());
    const std::string text(reinterpret_cast<const char*>(data), bytes);
    if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
  });
}

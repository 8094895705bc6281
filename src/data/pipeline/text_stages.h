// Text as tokens: bytes, characters or GPT-2's pairs of bytes, and packing into sequences of one
// length. Texts are uint8 (?), as text_line_dataset has them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/bpe.h"
#include "data/pipeline/dataset.h"

namespace pl {

struct TokenOptions {
  std::string field = {};            // whose text; empty: the first. Others are left out
  std::vector<int32_t> append = {};  // behind each text, such as a newline or the end of a text
  ByteCount max_bytes = {};          // of a text's tokens; default: 4 for each byte of the text's
  int64_t num_parallel_calls = 1;    // or AUTOTUNE
};

// "tokens": int32 (?), a byte each.
Dataset byte_tokens(const Dataset& texts, const TokenOptions& options = {});

// Characters (Unicode's code points) by number, in ascending order.
class CharVocabulary {
 public:
  // Those of a text in UTF-8, or of files. Bytes that are no UTF-8 are U+FFFD.
  static CharVocabulary of(std::string_view text);
  static CharVocabulary of_files(const std::vector<std::string>& files);

  int32_t size() const { return static_cast<int32_t>(code_points_.size()); }
  uint64_t hash() const;
  // Token of a character, -1: it is none of them.
  int32_t token(uint32_t code_point) const;
  // Throws DataError for a character that is none of them, unless `unknown` is a token.
  void encode(std::string_view text, int32_t unknown, std::vector<int32_t>& out) const;
  std::string decode(std::span<const int32_t> tokens) const;  // throws DataError

 private:
  explicit CharVocabulary(std::vector<uint32_t> code_points);
  std::vector<uint32_t> code_points_;
  std::unordered_map<uint32_t, int32_t> tokens_;
};

// `unknown`: the token of characters that are not in the vocabulary; -1: they are an error.
Dataset char_tokens(const Dataset& texts, std::shared_ptr<const CharVocabulary> vocabulary,
                    const TokenOptions& options = {}, int32_t unknown = -1);

// GPT-2's tokens; tokenizer->end_of_text() may be appended.
Dataset bpe_tokens(const Dataset& texts, std::shared_ptr<const BpeTokenizer> tokenizer,
                   const TokenOptions& options = {});

struct PackOptions {
  // x and y (length,) each, y moved on by one; sequences have one token in common, so that every
  // token but the first is a target once.
  bool next_token = false;
  // The last sequence, if it is not whole: left out, or filled up with `padding`.
  bool drop_remainder = true;
  int64_t padding = 0;
};
// The tokens of the first field, (?) of integers, behind each other, cut into (length,). Fields are
// called tokens, or x and y.
Dataset pack_sequences(const Dataset& tokens, int64_t length, const PackOptions& options = {});

}  // namespace pl

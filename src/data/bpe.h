// Byte-level byte-pair encoding as GPT-2 does it: text is cut into words, numbers and runs of signs
// or blanks; the bytes of each piece are joined pair by pair, in the order in which the pairs were
// learned.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pl {

class BpeTokenizer {
 public:
  // GPT-2's merges.txt (or vocab.bpe): a pair a line. The ids are those of the pairs' order, behind
  // the 256 bytes; a vocabulary (vocab.json or encoder.json) may give others. Throws DataError for
  // files that do not belong together or are none.
  static BpeTokenizer load(const std::string& merges, const std::string& vocabulary = {});

  // Bytes that are not UTF-8 are signs. Never fails: every byte is a token of its own.
  std::vector<int32_t> encode(std::string_view text) const;
  // Appends the tokens to `out`.
  void encode(std::string_view text, std::vector<int32_t>& out) const;
  // Throws DataError for ids that are none.
  std::string decode(std::span<const int32_t> ids) const;

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  uint64_t hash() const;  // of all tokens and pairs
  // "<|endoftext|>", which separates documents; encode never makes it. -1: there is none.
  int32_t end_of_text() const { return end_of_text_; }
  std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }  // its bytes

 private:
  struct Merge {
    int32_t rank = 0, made = 0;
  };
  struct Scratch;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;
  const Merge* merge_of(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<std::string> texts_;  // by id
  std::unordered_map<uint64_t, Merge> merges_;
  int32_t end_of_text_ = -1;
};

// The pieces that GPT-2's pattern cuts a text into, in order; together they are the text.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace pl

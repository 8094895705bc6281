#include "data/bpe.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/byte_stream.h"
#include "data/unicode.h"

namespace pl {
namespace {

constexpr Bytes kMostFile = 64 * kMiB;
constexpr std::string_view kEndOfText = "<|endoftext|>";

// Files write a byte as a printable character: itself, or one of those from U+0100 on.
std::array<uint32_t, 256> byte_characters() {
  std::array<uint32_t, 256> of{};
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool shown = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    of[b] = shown ? b : next++;
  }
  return of;
}

class TokenReader {
 public:
  TokenReader() {
    const auto characters = byte_characters();
    for (uint32_t b = 0; b < 256; ++b) bytes_[characters[b]] = static_cast<char>(b);
  }

  std::string bytes(std::string_view token, const std::string& where) const {
    std::string out;
    while (!token.empty()) {
      const DecodedChar c = decode_utf8(token);
      const auto found = bytes_.find(c.code_point);
      if (found == bytes_.end())
        throw DataError(where + ": expected tokens in GPT-2's byte characters, received '" +
                        std::string(token.substr(0, 20)) + "'");
      out += found->second;
      token.remove_prefix(c.bytes);
    }
    return out;
  }

 private:
  std::unordered_map<uint32_t, char> bytes_;
};

using Ids = std::unordered_map<std::string, int32_t>;

// GPT-2's order of single bytes: the printable ones, then the others.
Ids byte_order() {
  Ids ids;
  const auto characters = byte_characters();
  int32_t next = 0;
  for (bool shown : {true, false})
    for (uint32_t b = 0; b < 256; ++b)
      if ((characters[b] < 0x100) == shown) ids[std::string(1, static_cast<char>(b))] = next++;
  return ids;
}

Ids read_vocabulary(const std::string& path, const TokenReader& reader, int32_t& end_of_text) {
  const Json json = parse_json(read_whole(path, kMostFile), path);
  const auto& members = json.as_object(path);
  Ids ids;
  for (const auto& [token, value] : members) {
    const int64_t id = value.as_integer(path + ", " + token);
    if (id < 0 || id >= static_cast<int64_t>(members.size()))
      throw DataError("[data] " + path + ": expected ids from 0 to " +
                      std::to_string(members.size() - 1) + ", received " + std::to_string(id));
    if (token == kEndOfText)
      end_of_text = static_cast<int32_t>(id);
    else
      ids[reader.bytes(token, "[data] " + path)] = static_cast<int32_t>(id);
  }
  return ids;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A contraction's length behind its apostrophe, or 0.
size_t contraction(std::string_view behind) {
  for (std::string_view end : {"re", "ve", "ll", "s", "t", "m", "d"})
    if (behind.starts_with(end)) return end.size();
  return 0;
}

// How many bytes from the beginning are characters of one kind.
size_t run_of(std::string_view text, CharKind kind) {
  size_t at = 0;
  while (at < text.size()) {
    const DecodedChar c = decode_utf8(text.substr(at));
    if (char_kind(c.code_point) != kind) break;
    at += c.bytes;
  }
  return at;
}

size_t piece_length(std::string_view text) {
  if (text[0] == '\'')
    if (const size_t end = contraction(text.substr(1))) return 1 + end;
  const size_t space = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const CharKind kind = char_kind(decode_utf8(text.substr(space)).code_point);
  if (kind != CharKind::blank) return space + run_of(text.substr(space), kind);
  const size_t blanks = run_of(text, CharKind::blank);
  if (blanks == text.size()) return blanks;
  // The last blank goes with the word behind it, if it can.
  size_t last = blanks - 1;
  while (static_cast<unsigned char>(text[last]) >> 6 == 2) --last;
  return last > 0 ? last : blanks;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

uint64_t BpeTokenizer::hash() const {
  Xxh3 hash;
  for (const std::string& text : texts_) hash.update(std::to_string(text.size()) + ":" + text);
  hash.update(byte_ids_.data(), sizeof(byte_ids_));
  uint64_t pairs = 0;  // in whatever order they come
  for (const auto& [pair, merge] : merges_) {
    const uint64_t all[] = {pair, static_cast<uint64_t>(merge.rank),
                            static_cast<uint64_t>(merge.made)};
    pairs += xxh3(all, sizeof(all));
  }
  return hash.update(&pairs, sizeof(pairs)).digest();
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t length = piece_length(text);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

BpeTokenizer BpeTokenizer::load(const std::string& merges, const std::string& vocabulary) {
  BpeTokenizer made;
  const TokenReader reader;
  const bool given = !vocabulary.empty();
  Ids ids = given ? read_vocabulary(vocabulary, reader, made.end_of_text_) : byte_order();
  for (int b = 0; b < 256; ++b) {
    const auto found = ids.find(std::string(1, static_cast<char>(b)));
    if (found == ids.end())
      throw DataError("[data] " + vocabulary +
                      ": expected a token for each byte, received none for " + std::to_string(b));
    made.byte_ids_[static_cast<size_t>(b)] = found->second;
  }
  const std::string file = read_whole(merges, kMostFile);
  int32_t rank = 0, line_number = 0;
  for (std::string_view line : lines_of(file)) {
    ++line_number;
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::string where = "[data] " + merges + ", line " + std::to_string(line_number);
    const size_t space = line.find(' ');
    if (space == line.npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos)
      throw DataError(where + ": expected two tokens with a space between them, received '" +
                      std::string(line.substr(0, 40)) + "'");
    const std::string left = reader.bytes(line.substr(0, space), where);
    const std::string right = reader.bytes(line.substr(space + 1), where);
    if (!given && !ids.emplace(left + right, 256 + rank).second)
      throw DataError(where + ": expected each token to be made once, received '" +
                      std::string(line.substr(0, 40)) + "'; give the vocabulary too");
    const auto a = ids.find(left), b = ids.find(right), joined = ids.find(left + right);
    if (a == ids.end() || b == ids.end() || joined == ids.end())
      throw DataError(
          where + ": expected a pair of known tokens that make a known one, received '" +
          std::string(line.substr(0, 40)) + "'; do the merges belong to this vocabulary?");
    made.merges_.emplace(pair_key(a->second, b->second), Merge{rank++, joined->second});
  }
  if (!given) made.end_of_text_ = 256 + rank;
  made.texts_.resize(ids.size() + (made.end_of_text_ >= 0 ? 1 : 0));
  for (const auto& [text, id] : ids) made.texts_.at(static_cast<size_t>(id)) = text;
  if (made.end_of_text_ >= 0) made.texts_.at(static_cast<size_t>(made.end_of_text_)) = kEndOfText;
  return made;
}

const BpeTokenizer::Merge* BpeTokenizer::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// A piece as a list of tokens, and the pairs in it that can be joined, the earliest learned first.
struct BpeTokenizer::Scratch {
  struct Candidate {
    int32_t rank, at, made;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  std::vector<int32_t> ids, next, before;  // an id of -1 was joined to its left neighbour
  std::vector<Candidate> heap;
};

void BpeTokenizer::encode_piece(std::string_view piece, Scratch& s,
                                std::vector<int32_t>& out) const {
  const auto count = static_cast<int32_t>(piece.size());
  s.ids.clear(), s.next.clear(), s.before.clear(), s.heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    s.ids.push_back(byte_ids_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])]);
    s.next.push_back(i + 1);
    s.before.push_back(i - 1);
  }
  const auto at = [](std::vector<int32_t>& list, int32_t i) -> int32_t& {
    return list[static_cast<size_t>(i)];
  };
  const auto offer = [&](int32_t i) {
    if (i < 0 || at(s.next, i) >= count) return;
    const Merge* merge = merge_of(at(s.ids, i), at(s.ids, at(s.next, i)));
    if (!merge) return;
    s.heap.push_back({merge->rank, i, merge->made});
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const Scratch::Candidate best = s.heap.back();
    s.heap.pop_back();
    const int32_t i = best.at;
    if (at(s.ids, i) < 0 || at(s.next, i) >= count) continue;
    const int32_t gone = at(s.next, i);
    const Merge* merge = merge_of(at(s.ids, i), at(s.ids, gone));
    if (!merge || merge->rank != best.rank) continue;  // one of the two is another token by now
    at(s.ids, i) = best.made;
    at(s.ids, gone) = -1;
    at(s.next, i) = at(s.next, gone);
    if (at(s.next, i) < count) at(s.before, at(s.next, i)) = i;
    offer(i);
    offer(at(s.before, i));
  }
  for (int32_t i = 0; i < count; i = at(s.next, i)) out.push_back(at(s.ids, i));
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  Scratch scratch;
  constexpr size_t kMostPiece = 1 << 30;  // places are counted in 32 bits
  while (!text.empty()) {
    const size_t length = std::min(piece_length(text), kMostPiece);
    encode_piece(text.substr(0, length), scratch, out);
    text.remove_prefix(length);
  }
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> out;
  encode(text, out);
  return out;
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (int32_t id : ids) {
    if (id < 0 || id >= size())
      throw DataError("[data] tokens: expected ids from 0 to " + std::to_string(size() - 1) +
                      ", received " + std::to_string(id));
    out += texts_[static_cast<size_t>(id)];
  }
  return out;
}

}  // namespace pl

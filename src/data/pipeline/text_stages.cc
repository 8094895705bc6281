#include "data/pipeline/text_stages.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_stream.h"
#include "data/pipeline/groups.h"
#include "data/pipeline/ledger.h"
#include "data/pipeline/stages.h"
#include "data/unicode.h"

namespace pl {
namespace {

using Encode = std::function<void(std::string_view text, std::vector<int32_t>& out)>;

// `key`: of the tokenizer.
Dataset tokens_of(const Dataset& texts, const char* name, const TokenOptions& options,
                  const std::string& key, Encode encode) {
  const ElementSpec& spec = texts.element_spec();
  size_t at = 0;
  while (at < spec.fields.size() && !options.field.empty() && spec.fields[at].name != options.field)
    ++at;
  if (at >= spec.fields.size() || spec.fields[at].dtype != Dtype::uint8 ||
      spec.fields[at].shape.rank() != 1)
    throw UserError("[data] " + std::string(name) + ": expected text, uint8 (?,), in " +
                    (options.field.empty() ? "the first field" : "field " + options.field) +
                    ", received elements of " + spec.text() + "; .field names another");
  std::string all = key + "|" + options.field;
  for (const int32_t token : options.append) all += "," + std::to_string(token);
  return Dataset(map_stage(
                     texts.stage(),
                     [at, encode = std::move(encode), append = options.append](const Element& in,
                                                                               uint64_t) {
                       const std::string_view text(in[at].data_as<const char>(),
                                                   static_cast<size_t>(in[at].meta().bytes()));
                       const HeapCharge charge(
                           static_cast<Bytes>(4 * (text.size() + append.size())), "tokens");
                       std::vector<int32_t> tokens;
                       tokens.reserve(text.size() + append.size());
                       encode(text, tokens);
                       tokens.insert(tokens.end(), append.begin(), append.end());
                       Tensor out(Meta{Dtype::int32, Shape{static_cast<Dim>(tokens.size())}});
                       if (!tokens.empty())
                         std::memcpy(out.data(), tokens.data(), tokens.size() * 4);
                       return Element{out};
                     },
                     {.spec = ElementSpec{{{"tokens", Dtype::int32, Shape{kUnknown}}}},
                      .parallel = parallel_calls(
                          {.num_parallel_calls = options.num_parallel_calls, .name = name}),
                      .max_bytes = options.max_bytes.value(),
                      .bytes_per_byte = 4,
                      .more_bytes = 4 * static_cast<Bytes>(options.append.size()),
                      .key = std::move(all)},
                     name))
      .with_options(texts.options());
}

void expect_given(const char* stage, const char* what, const void* given) {
  if (!given)
    throw UserError("[data] " + std::string(stage) + ": expected " + what +
                    ", received none; load or make one");
}

template <class Use>
void each_character(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const DecodedChar c = decode_utf8(text);
    use(c.code_point);
    text.remove_prefix(c.bytes);
  }
}

void append_utf8(uint32_t c, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

// Sequences are filled as tokens come: what is held is the text in hand and the sequence.
class Pack final : public Stage {
 public:
  Pack(StageRef input, int64_t length, const PackOptions& options)
      : Stage("pack_sequences", {std::move(input)}), length_(length), options_(options) {
    const FieldSpec& in = this->input().spec().fields[0];
    const Shape shape{length};
    spec_ = options.next_token ? ElementSpec{{{"x", in.dtype, shape}, {"y", in.dtype, shape}}}
                               : ElementSpec{{{"tokens", in.dtype, shape}}};
    if (this->input().cardinality() == kInfiniteCardinality) cardinality_ = kInfiniteCardinality;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  // The sequence with one token more, and what is made of it.
  Bytes floor(const Sizing& sizing) const override {
    const Meta whole{spec_.fields[0].dtype, Shape{length_ + 1}};
    return input().floor(sizing) + granted(whole.bytes()) + out_bytes(sizing);
  }
  std::string options() const override {
    return std::to_string(length_) + (options_.next_token ? ", next token" : "");
  }
  std::string decides() const override {
    return options() + ", padding " + std::to_string(options_.padding) +
           (options_.drop_remainder ? ", drop_remainder" : "");
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override;

 private:
  friend class PackIterator;
  int64_t length_;
  PackOptions options_;
};

class PackIterator final : public Iterator {
 public:
  PackIterator(const Pack& node, Run& run, uint64_t epoch)
      : node_(node),
        input_(node.inputs()[0]->iterate(run, epoch)),
        figures_(run.figures(node)),
        size_(size_of(node.spec().fields[0].dtype)),
        wanted_(node.length_ + (node.options_.next_token ? 1 : 0)),
        whole_(Meta{node.spec().fields[0].dtype, Shape{node.length_ + 1}}) {}

  bool next(Element& out) override {
    out.clear();
    if (!fill()) return false;
    for (const FieldSpec& field : node_.spec().fields) {
      const Bytes from = out.empty() ? 0 : size_;
      Tensor& tensor = out.emplace_back(Meta{field.dtype, field.shape});
      std::memcpy(tensor.data(), whole_.data_as<char>() + from,
                  static_cast<size_t>(node_.length_ * size_));
    }
    pass();
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    int64_t done = 0;
    for (; done < count && fill(); ++done) pass();
    return done;
  }

 private:
  // False: there is no further sequence.
  bool fill() {
    while (held_ < wanted_) {
      if (text_.empty() || at_ == text_[0].shape()[0]) {
        text_.clear();
        at_ = 0;
        if (ended_ || !input_->next(text_)) {
          ended_ = true;
          return pad();
        }
        continue;
      }
      const int64_t count = std::min(wanted_ - held_, text_[0].shape()[0] - at_);
      std::memcpy(whole_.data_as<char>() + held_ * size_, text_[0].data_as<char>() + at_ * size_,
                  static_cast<size_t>(count * size_));
      held_ += count;
      at_ += count;
      fresh_ += count;
    }
    return true;
  }
  bool pad() {
    if (node_.options_.drop_remainder || fresh_ == 0) return false;
    const int64_t padding = node_.options_.padding;  // little-endian
    for (; held_ < wanted_; ++held_)
      std::memcpy(whole_.data_as<char>() + held_ * size_, &padding, static_cast<size_t>(size_));
    return true;
  }
  // The last token stays where it is the next one's first.
  void pass() {
    fresh_ = 0;
    held_ = wanted_ - node_.length_;
    if (held_ > 0)
      std::memcpy(whole_.data(), whole_.data_as<char>() + node_.length_ * size_,
                  static_cast<size_t>(size_));
  }

  const Pack& node_;
  IteratorRef input_;
  StageFigures& figures_;
  const Bytes size_;
  const int64_t wanted_;
  Tensor whole_;  // the sequence so far
  Element text_;
  int64_t at_ = 0, held_ = 0;
  int64_t fresh_ = 0;  // tokens that no sequence has had
  bool ended_ = false;
};

IteratorRef Pack::iterate(Run& run, uint64_t epoch) const {
  return std::make_unique<PackIterator>(*this, run, epoch);
}

}  // namespace

Dataset byte_tokens(const Dataset& texts, const TokenOptions& options) {
  return tokens_of(texts, "byte_tokens", options, "bytes",
                   [](std::string_view text, std::vector<int32_t>& out) {
                     for (const char c : text) out.push_back(static_cast<unsigned char>(c));
                   });
}

CharVocabulary::CharVocabulary(std::vector<uint32_t> code_points)
    : code_points_(std::move(code_points)) {
  for (const uint32_t c : code_points_) tokens_.emplace(c, static_cast<int32_t>(tokens_.size()));
}

CharVocabulary CharVocabulary::of(std::string_view text) {
  std::set<uint32_t> found;
  each_character(text, [&](uint32_t c) { found.insert(c); });
  return CharVocabulary({found.begin(), found.end()});
}

CharVocabulary CharVocabulary::of_files(const std::vector<std::string>& files) {
  std::set<uint32_t> found;
  for (const std::string& path : files) {
    ByteStream stream(path);
    std::string piece(64 * 1024, '\0');
    size_t kept = 0;  // the beginning of a character that the last piece cut
    while (true) {
      const Bytes got = stream.read(piece.data() + kept, static_cast<Bytes>(piece.size() - kept));
      const bool ended = static_cast<size_t>(got) < piece.size() - kept;
      const size_t have = kept + static_cast<size_t>(got);
      std::string_view text(piece.data(), have);
      while (!text.empty() && (ended || text.size() >= 4)) {
        const DecodedChar c = decode_utf8(text);
        found.insert(c.code_point);
        text.remove_prefix(c.bytes);
      }
      kept = text.size();
      std::memmove(piece.data(), text.data(), kept);
      if (ended) break;
    }
  }
  return CharVocabulary({found.begin(), found.end()});
}

uint64_t CharVocabulary::hash() const {
  return xxh3(code_points_.data(), code_points_.size() * sizeof(uint32_t));
}

int32_t CharVocabulary::token(uint32_t code_point) const {
  const auto at = tokens_.find(code_point);
  return at == tokens_.end() ? -1 : at->second;
}

void CharVocabulary::encode(std::string_view text, int32_t unknown,
                            std::vector<int32_t>& out) const {
  each_character(text, [&](uint32_t c) {
    int32_t token = this->token(c);
    if (token < 0) token = unknown;
    if (token < 0)
      throw DataError("expected characters of the vocabulary, received U+" + [c] {
        char hex[16];
        std::snprintf(hex, sizeof(hex), "%04X", c);
        return std::string(hex);
      }() + "; give a token for unknown ones");
    out.push_back(token);
  });
}

std::string CharVocabulary::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token < 0 || token >= size())
      throw DataError("[data] expected tokens from 0 to " + std::to_string(size() - 1) +
                      ", received " + std::to_string(token));
    append_utf8(code_points_[static_cast<size_t>(token)], text);
  }
  return text;
}

Dataset char_tokens(const Dataset& texts, std::shared_ptr<const CharVocabulary> vocabulary,
                    const TokenOptions& options, int32_t unknown) {
  expect_given("char_tokens", "a vocabulary", vocabulary.get());
  const std::string key = hex16(vocabulary->hash()) + ", unknown " + std::to_string(unknown);
  return tokens_of(texts, "char_tokens", options, key,
                   [vocabulary = std::move(vocabulary), unknown](std::string_view text,
                                                                 std::vector<int32_t>& out) {
                     vocabulary->encode(text, unknown, out);
                   });
}

Dataset bpe_tokens(const Dataset& texts, std::shared_ptr<const BpeTokenizer> tokenizer,
                   const TokenOptions& options) {
  expect_given("bpe_tokens", "a tokenizer", tokenizer.get());
  const std::string key = hex16(tokenizer->hash());
  return tokens_of(
      texts, "bpe_tokens", options, key,
      [tokenizer = std::move(tokenizer)](std::string_view text, std::vector<int32_t>& out) {
        tokenizer->encode(text, out);
      });
}

Dataset pack_sequences(const Dataset& tokens, int64_t length, const PackOptions& options) {
  expect_positive("pack_sequences", "length", length);
  const ElementSpec& spec = tokens.element_spec();
  if (spec.fields.empty() || spec.fields[0].shape.rank() != 1 || is_floating(spec.fields[0].dtype))
    throw UserError("[data] pack_sequences: expected tokens, integers (?,), in the first field, " +
                    std::string("received elements of ") + spec.text() +
                    "; byte_tokens, char_tokens and bpe_tokens make them of text");
  return Dataset(std::make_shared<Pack>(tokens.stage(), length, options))
      .with_options(tokens.options());
}

}  // namespace pl

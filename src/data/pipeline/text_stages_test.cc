// Texts as tokens, and sequences of one length made of them.
#include "data/pipeline/text_stages.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::text_stages_test {
namespace {

using test::TempFolder;
using List = std::vector<int64_t>;

Dataset lines(const TempFolder& folder, const std::string& text) {
  return text_line_dataset({test::write_bytes(folder / "text", text)}, {.max_bytes = 4096});
}

std::vector<List> sequences(DatasetIterator iterator, size_t field = 0) {
  std::vector<List> list;
  for (Element e; iterator.next(e);) {
    const auto* tokens = e[field].data_as<int32_t>();
    list.emplace_back(tokens, tokens + e[field].shape()[0]);
  }
  return list;
}

TEST(Tokens, BytesAndCharacters) {
  const TempFolder folder;
  const Dataset text = lines(folder, "ab\n\xC3\xA9z\n");
  EXPECT_EQ(sequences(byte_tokens(text, {.append = {10}}).iterate()),
            (std::vector<List>{{97, 98, 10}, {0xC3, 0xA9, 122, 10}}));
  const auto vocabulary = std::make_shared<const CharVocabulary>(CharVocabulary::of("zab\xC3\xA9"));
  EXPECT_EQ(vocabulary->size(), 4);
  EXPECT_EQ(sequences(char_tokens(text, vocabulary).iterate()),
            (std::vector<List>{{0, 1}, {3, 2}}));
  const std::vector<int32_t> tokens{3, 0, 2};
  EXPECT_EQ(vocabulary->decode(tokens),
            "\xC3\xA9"
            "az");
  const auto small = std::make_shared<const CharVocabulary>(CharVocabulary::of("ab"));
  test::expect_data_error([&] { sequences(char_tokens(text, small).iterate()); }, "U+00E9");
  EXPECT_EQ(sequences(char_tokens(text, small, {}, 7).iterate()),
            (std::vector<List>{{0, 1}, {7, 7}}));
  // Of a file longer than what is read at a time, with characters across the border.
  std::string longer(64 * 1024 - 1, 'a');
  longer += "\xE2\x82\xAC\xF0\x9F\x98\x80\xFF";
  const std::string path = test::write_bytes(folder / "long", longer);
  const CharVocabulary found = CharVocabulary::of_files({path});
  EXPECT_EQ(found.size(), 4);
  EXPECT_GE(found.token(0x20AC), 0);
  EXPECT_GE(found.token(0x1F600), 0);
  EXPECT_GE(found.token(0xFFFD), 0);
  EXPECT_THROW(byte_tokens(Dataset::range(3)), UserError);
}

TEST(Tokens, PairsAsTiktokenHasThem) {
  const TempFolder folder;
  const Json json = parse_json(test::read_bytes(::pl::test::golden("formats.json")), "formats");
  const Json& answer = json.at("bpe", "answers");
  const auto tokenizer = std::make_shared<const BpeTokenizer>(
      BpeTokenizer::load(test::golden_file("formats/gpt2_merges.txt.gz")));
  // The first text has no newline in it.
  const std::string text = answer.at("texts", "bpe").as_array("texts")[0].as_string("text");
  List expected;
  for (const Json& id : answer.at("ids", "bpe").as_array("ids")[0].as_array("ids"))
    expected.push_back(id.as_integer("id"));
  expected.push_back(50256);
  EXPECT_EQ(sequences(bpe_tokens(lines(folder, text), tokenizer,
                                 {.append = {tokenizer->end_of_text()}, .num_parallel_calls = 2})
                          .iterate()),
            (std::vector<List>{expected}));
}

TEST(Pack, SequencesOfOneLength) {
  const TempFolder folder;
  const Dataset tokens = byte_tokens(lines(folder, "abcde\n\nfg\nhijklmnop\n"));
  const Dataset packed = pack_sequences(tokens, 4);
  EXPECT_EQ(packed.element_spec().text(), "tokens: int32 (4,)");
  const auto codes = [](const std::string& text) {
    List list;
    for (const char c : text) list.push_back(c == '.' ? 0 : c);
    return list;
  };
  EXPECT_EQ(sequences(packed.iterate()),
            (std::vector<List>{codes("abcd"), codes("efgh"), codes("ijkl"), codes("mnop")}));
  EXPECT_EQ(sequences(pack_sequences(tokens, 5, {.drop_remainder = false}).iterate()).back(),
            codes("p...."));
  EXPECT_EQ(sequences(pack_sequences(tokens, 5).iterate()).size(), 3u);
  const Dataset targets = pack_sequences(tokens, 4, {.next_token = true});
  EXPECT_EQ(targets.element_spec().text(), "x: int32 (4,), y: int32 (4,)");
  EXPECT_EQ(sequences(targets.iterate()),
            (std::vector<List>{codes("abcd"), codes("efgh"), codes("ijkl")}));
  EXPECT_EQ(sequences(targets.iterate(), 1),
            (std::vector<List>{codes("bcde"), codes("fghi"), codes("jklm")}));
  const Dataset whole = pack_sequences(tokens, 4, {.next_token = true, .drop_remainder = false});
  EXPECT_EQ(sequences(whole.iterate(), 1).back(), codes("nop."));
  // Nothing is left when the last target was the last token.
  EXPECT_EQ(
      sequences(pack_sequences(tokens, 5, {.next_token = true, .drop_remainder = false}).iterate())
          .size(),
      3u);
  EXPECT_THROW(pack_sequences(tokens, 0), UserError);
  EXPECT_THROW(pack_sequences(Dataset::range(4), 2), UserError);
}

TEST(Pack, GoesOnExactlyWhereItWas) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += std::string(static_cast<size_t>(i * 7 % 11), static_cast<char>('a' + i % 26)) + "\n";
  const Dataset data =
      pack_sequences(byte_tokens(lines(folder, text), {.append = {10}, .num_parallel_calls = 2}), 7,
                     {.next_token = true})
          .shuffle(5, {.seed = 2})
          .prefetch(2);
  const std::vector<List> all = sequences(data.iterate());
  ASSERT_GT(all.size(), 20u);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{13}, all.size() - 1, all.size()}) {
    DatasetIterator first = data.iterate();
    Element e;
    for (size_t i = 0; i < at; ++i) first.next(e);
    const std::string position = first.save();
    EXPECT_LT(position.size(), 1024u);
    DatasetIterator second = data.with_options({.memory = "8MiB", .threads = 1}).iterate();
    second.restore(position);
    EXPECT_EQ(sequences(std::move(second)),
              std::vector<List>(all.begin() + static_cast<long>(at), all.end()));
  }
}

TEST(Pack, HoldsATextAndASequence) {
  const TempFolder folder;
  const Dataset tokens = byte_tokens(lines(folder, std::string(4000, 'x') + "\nyy\n"));
  const Dataset data = pack_sequences(tokens, 64);
  const Dataset least = data.with_options({.memory = data.minimum_bytes()});
  DatasetIterator iterator = least.iterate();
  int64_t count = 0;
  for (Element e; iterator.next(e);) ++count;
  EXPECT_EQ(count, 62);
  EXPECT_LE(iterator.report().ledger.payload_peak, data.minimum_bytes());
}

}  // namespace
}  // namespace pl::text_stages_test

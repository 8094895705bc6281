// Records, tables, archives and tokens against TensorFlow's, Python's and tiktoken's
// (tests/golden/formats.py made the answers, and has TensorFlow read what we write).
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "data/bpe.h"
#include "data/csv.h"
#include "data/example.h"
#include "data/tar.h"
#include "data/tfrecord.h"
#include "tests/data_files.h"

namespace pl::formats_test {
namespace {

using test::expect_data_error;
using test::golden_file;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

std::string stored(const std::string& name) { return golden_file("formats/" + name); }

const Json& answers() {
  static const Json json = parse_json(read_bytes(::pl::test::golden("formats.json")), "formats");
  return json;
}

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list.as_array("list")) out.push_back(one.as_string("text"));
  return out;
}

std::vector<Example> examples() {
  std::string bytes;
  for (int i = 0; i < 5 * 256; ++i) bytes += static_cast<char>(i);
  Feature names{.kind = Feature::bytes};
  names.bytes_list = {"first", "", std::string("\0\xFF", 2)};
  return {{{{"label", Feature::of_integers({3})},
            {"weight", Feature::of_floats({0.5f, -1.25f, 3e38f})},
            {"name", names},
            {"big", Feature::of_integers({INT64_MAX, INT64_MIN, -1, 0})}}},
          {{{"label", Feature::of_integers({7})}, {"image", Feature::of_bytes(bytes)}}},
          {{{"empty_ints", Feature::of_integers({})}, {"label", Feature::of_integers({-1})}}}};
}

void expect_equal(const Example& got, const Example& want) {
  ASSERT_EQ(got.features.size(), want.features.size());
  for (const NamedFeature& named : want.features) {
    const Feature* found = got.find(named.name);
    ASSERT_NE(found, nullptr) << named.name;
    EXPECT_EQ(found->kind, named.feature.kind) << named.name;
    EXPECT_EQ(found->bytes_list, named.feature.bytes_list);
    EXPECT_EQ(found->float_list, named.feature.float_list);
    EXPECT_EQ(found->int64_list, named.feature.int64_list);
  }
}

std::vector<std::string> records(const std::string& path) {
  TfRecordReader reader(path);
  std::vector<std::string> out;
  while (const auto bytes = reader.next()) {
    out.emplace_back(static_cast<size_t>(*bytes), '\0');
    reader.read(out.back().data());
  }
  return out;
}

TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);  // RFC 3720
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xE3069283u) << "piece by piece";
}

TEST(TfRecord, ReadsWhatTensorFlowWrote) {
  const std::vector<Example> want = examples();
  for (const char* name : {"tf.tfrecord", "tf.tfrecord.gz", "tf.tfrecord.zlib"}) {
    const std::vector<std::string> got = records(stored(name));
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) expect_equal(parse_example(got[i], name), want[i]);
  }
  // In any order, through an index.
  const File file = File::open(stored("tf.tfrecord"));
  const std::vector<RecordPlace> places = index_tfrecords(file);
  ASSERT_EQ(places.size(), want.size());
  for (size_t i = places.size(); i-- > 0;) {
    std::string bytes(static_cast<size_t>(places[i].bytes), '\0');
    read_tfrecord(file, places[i], bytes.data());
    expect_equal(parse_example(bytes, "record"), want[i]);
  }
}

TEST(TfRecord, WritesWhatTensorFlowReads) {
  const TempFolder folder;
  for (auto compression : {RecordCompression::none, RecordCompression::gzip}) {
    const bool plain = compression == RecordCompression::none;
    const std::string name = plain ? "ours.tfrecord" : "ours.tfrecord.gz";
    write_tfrecords(folder / name, compression, [](TfRecordSink& sink) {
      for (const Example& example : examples()) sink.write(serialize_example(example));
    });
    EXPECT_EQ(records(folder / name), records(stored(name)));
    // Bytes of a compressed file depend on zlib's version.
    if (plain) {
      EXPECT_EQ(read_bytes(folder / name), read_bytes(stored(name)));
    }
  }
  EXPECT_EQ(read_bytes(stored("ours.tfrecord")), read_bytes(stored("tf.tfrecord")));
}

TEST(TfRecord, SkipsWithoutReading) {
  TfRecordReader reader(stored("tf.tfrecord.gz"));
  ASSERT_TRUE(reader.next() && reader.next());
  const auto bytes = reader.next();
  ASSERT_TRUE(bytes);
  std::string last(static_cast<size_t>(*bytes), '\0');
  reader.read(last.data());
  expect_equal(parse_example(last, "last"), examples()[2]);
  EXPECT_FALSE(reader.next());
}

TEST(TfRecord, RefusesDamagedFilesByName) {
  const TempFolder folder;
  const std::string good = read_bytes(stored("tf.tfrecord")), path = folder / "bad.tfrecord";
  const auto damaged = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_bytes(path, bytes);
  };
  damaged(3);
  expect_data_error([&] { records(path); }, "record 0: expected a length with its CRC");
  damaged(40);
  expect_data_error([&] { records(path); }, "record 0: expected a record with its CRC");
  expect_data_error([&] { records(path); }, "bad.tfrecord");
  write_bytes(path, good.substr(0, good.size() - 5));
  expect_data_error([&] { records(path); }, "truncated");
  expect_data_error([&] { index_tfrecords(File::open(path)); }, "truncated");
  write_bytes(path, good + "12345");
  expect_data_error([&] { records(path); }, "expected a header of 12 bytes, received 5");
  // A length of 2^62 with a right CRC must not be believed.
  std::string length(8, '\0');
  length[7] = 0x40;
  const uint32_t crc = masked_crc32c(length);
  write_bytes(path, length + std::string(reinterpret_cast<const char*>(&crc), 4));
  expect_data_error([&] { records(path); }, "received a length of 4611686018427387904 bytes");
}

TEST(Example, RefusesOtherMessages) {
  expect_data_error([] { parse_example("\x0A\xFF\x01", "file"), void(); }, "file: expected");
  expect_data_error([] { parse_example("\x08\x01", "file"), void(); }, "tf.train.Example");
  expect_data_error([] { parse_example(std::string("\x00\x01", 2), "f"), void(); },
                    "field number 0");
}

TEST(Csv, ReadsWhatPythonWrote) {
  const auto& rows = answers().at("rows", "answers").as_array("rows");
  const std::vector<std::pair<std::string, char>> files{
      {"excel.csv", ','}, {"excel.csv.gz", ','}, {"unix.tsv", '\t'}};
  for (const auto& [name, delimiter] : files) {
    CsvReader reader(stored(name), {.delimiter = delimiter});
    EXPECT_EQ(reader.columns(), strings(rows[0]));
    std::vector<std::string_view> fields;
    for (size_t r = 1; r < rows.size(); ++r) {
      ASSERT_TRUE(reader.next(fields)) << name << " row " << r;
      EXPECT_EQ(std::vector<std::string>(fields.begin(), fields.end()), strings(rows[r])) << name;
    }
    EXPECT_FALSE(reader.next(fields));
  }
}

TEST(Csv, LinesWithoutAnythingAreNoRows) {
  const TempFolder folder;
  write_bytes(folder / "t.csv", "\n\"a\"\n\r\n\"\"\n\n1\n");
  CsvReader reader(folder / "t.csv");
  EXPECT_EQ(reader.columns(), std::vector<std::string>{"a"});
  std::vector<std::string_view> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(fields, std::vector<std::string_view>{""});  // as Python's csv has it
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(fields, std::vector<std::string_view>{"1"});
  EXPECT_FALSE(reader.next(fields));
}

TEST(Csv, RefusesBrokenRowsByLine) {
  const TempFolder folder;
  const auto fails = [&](const std::string& text, const std::string& message) {
    write_bytes(folder / "t.csv", text);
    expect_data_error(
        [&] {
          CsvReader reader(folder / "t.csv", {.max_row_bytes = 1000});
          std::vector<std::string_view> fields;
          while (reader.next(fields)) {
          }
        },
        message);
  };
  fails("a,b\n1,2\n3\n", "line 3: expected 2 fields, received 1");
  fails("a,b\n1,\"2\n3,4\n", "line 2: expected a quote that closes the field");
  fails("a,b\n1,\"2\"x\n", "line 2: expected the end of a field behind its closing quote");
  fails("a,b\n1,2\"\n", "a quote within a field");
  fails("a,b\n1,\"" + std::string(5000, 'x'), "max_row_bytes");
  EXPECT_EQ(parse_real(" -2.5e3 ", "x"), -2500);
  EXPECT_EQ(parse_integer("+7", "x"), 7);
  expect_data_error([] { parse_integer("7.5", "t.csv, line 2, column 'b'"), void(); },
                    "t.csv, line 2, column 'b': expected an integer, received '7.5'");
  expect_data_error([] { parse_real("", "x"), void(); }, "expected a number");
}

TEST(Tar, FindsWhatPythonWrote) {
  for (const char* form : {"ustar", "gnu", "pax"}) {
    const File file = File::open(stored(std::string(form) + ".tar"));
    const std::vector<TarEntry> entries = index_tar(file);
    const auto& want = answers().at("tar", "answers").at(form, "tar").as_array("files");
    ASSERT_EQ(entries.size(), want.size()) << form;
    for (size_t i = 0; i < want.size(); ++i) {
      const std::vector<std::string> pair = strings(want[i]);
      EXPECT_EQ(entries[i].name, pair[0]) << form;
      std::string data(static_cast<size_t>(entries[i].bytes), '\0');
      file.pread_exact(data.data(), entries[i].bytes, entries[i].at);
      EXPECT_EQ(data, pair[1]) << form;
    }
    const std::vector<TarSample> samples = group_tar(entries, form);
    ASSERT_GE(samples.size(), 2u);
    EXPECT_EQ(samples[0].key, "a/0001");
    ASSERT_EQ(samples[0].parts.size(), 2u);
    EXPECT_EQ(samples[0].parts[1].name, "cls");
    EXPECT_EQ(samples[1].parts[0].name, "seg.png");
  }
}

// A header with this name, type and size, and a right checksum.
std::string tar_header(const std::string& name, char type, const std::string& size) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(124, size.size(), size);
  block.replace(148, 8, 8, ' ');
  block[156] = type;
  int sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  char digits[16];
  std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(sum));
  return block.replace(148, 7, digits, 7);
}

TEST(Tar, RefusesHostileArchives) {
  const TempFolder folder;
  const auto fails = [&](const std::string& bytes, const std::string& message) {
    write_bytes(folder / "t.tar", bytes);
    expect_data_error([&] { index_tar(File::open(folder / "t.tar")), void(); }, message);
  };
  const std::string end(1024, '\0');
  fails(tar_header("../../etc/passwd", '0', "00000000000") + end, "names within the archive");
  fails(tar_header("/etc/passwd", '0', "00000000000") + end, "names within the archive");
  fails(tar_header("a/../../b", '0', "00000000000") + end, "received 'a/../../b'");
  fails(tar_header("a", '0', "77777777777") + end, "data that end before the file does");
  fails(tar_header("a", '2', "00000000000") + end, "type '2'");
  fails(tar_header("a", '0', "9") + end, "an octal number");
  fails(tar_header("a", '0', std::string("\x80\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12)) +
            end,
        "less than 2^63");
  fails(tar_header("a", 'x', "77777777777") + end, "a name of at most");
  fails("no archive at all", "blocks of 512 bytes");
  std::string wrong = tar_header("a", '0', "00000000000");
  wrong[0] = 'b';
  fails(wrong + end, "a header with its checksum");
}

TEST(Bpe, GivesTiktokensIds) {
  const BpeTokenizer tokenizer = BpeTokenizer::load(stored("gpt2_merges.txt.gz"));
  EXPECT_EQ(tokenizer.size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  const Json& answer = answers().at("bpe", "answers");
  const std::vector<std::string> texts = strings(answer.at("texts", "bpe"));
  const auto& ids = answer.at("ids", "bpe").as_array("ids");
  for (size_t t = 0; t < texts.size(); ++t) {
    std::vector<int32_t> want;
    for (const Json& id : ids[t].as_array("ids"))
      want.push_back(static_cast<int32_t>(id.as_integer("id")));
    const std::vector<int32_t> got = tokenizer.encode(texts[t]);
    EXPECT_EQ(got, want) << texts[t];
    EXPECT_EQ(tokenizer.decode(got), texts[t]);
  }
}

TEST(Bpe, TakesAnyBytesAndLongPieces) {
  const BpeTokenizer tokenizer = BpeTokenizer::load(stored("gpt2_merges.txt.gz"));
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += static_cast<char>(i * 37 % 256);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  const std::string long_word(200'000, 'x');  // quadratic time would be seen
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(long_word)), long_word);
  expect_data_error([&] { tokenizer.decode(std::vector<int32_t>{50257}), void(); },
                    "received 50257");
}

TEST(Bpe, ReadsAVocabularyAndRefusesOthers) {
  const TempFolder folder;
  write_bytes(folder / "merges.txt", "#version: 0.2\na b\nab c\n");
  const BpeTokenizer plain = BpeTokenizer::load(folder / "merges.txt");
  EXPECT_EQ(plain.size(), 259);
  EXPECT_EQ(plain.encode("abcab"), (std::vector<int32_t>{257, 256}));
  // The same tokens in another order.
  std::string vocabulary = "{\"<|endoftext|>\": 0, \"ab\": 1, \"abc\": 2";
  const auto character = [](int point) {  // of a file, in UTF-8
    return point < 0x80 ? std::string(1, static_cast<char>(point))
                        : std::string{static_cast<char>(0xC0 | point >> 6),
                                      static_cast<char>(0x80 | (point & 0x3F))};
  };
  for (int b = 0, other = 0x100; b < 256; ++b) {
    const bool shown = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const std::string token = character(shown ? b : other++);
    const std::string escape = token == "\"" || token == "\\" ? "\\" : "";
    vocabulary += ", \"" + escape + token + "\": " + std::to_string(3 + b);
  }
  write_bytes(folder / "vocab.json", vocabulary + "}");
  const BpeTokenizer other = BpeTokenizer::load(folder / "merges.txt", folder / "vocab.json");
  EXPECT_EQ(other.encode("abcab "), (std::vector<int32_t>{2, 1, 3 + ' '}));
  EXPECT_EQ(other.end_of_text(), 0);
  write_bytes(folder / "merges.txt", "a b\nx yz\n");
  expect_data_error([&] { BpeTokenizer::load(folder / "merges.txt"), void(); },
                    "line 2: expected a pair of known tokens");
  write_bytes(folder / "merges.txt", "a b c\n");
  expect_data_error([&] { BpeTokenizer::load(folder / "merges.txt"), void(); }, "two tokens");
  write_bytes(folder / "vocab.json", "{\"a\": 0}");
  expect_data_error(
      [&] { BpeTokenizer::load(folder / "merges.txt", folder / "vocab.json"), void(); },
      "a token for each byte");
}

}  // namespace
}  // namespace pl::formats_test

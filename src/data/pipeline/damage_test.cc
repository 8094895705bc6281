// Damage that shows while files are indexed: it stops a run with its name, or it is skipped,
// counted and named, and all that is whole is read.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/image/encode_png.h"
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "data/tfrecord.h"
#include "tests/data_files.h"

namespace pl::damage_test {
namespace {

using test::expect_data_error;
using test::tar_entry;
using test::TempFolder;
using test::write_bytes;

struct Read {
  std::vector<std::string> texts;  // of the first fields
  int64_t skipped = 0;
  std::vector<std::string> messages;
};

Read read_all(const Dataset& data) {
  Read read;
  DatasetIterator iterator = data.iterate();
  for (Element e; iterator.next(e);)
    read.texts.emplace_back(e[0].data_as<const char>(), static_cast<size_t>(e[0].meta().bytes()));
  for (const StageReport& stage : iterator.report().stages) {
    read.skipped += stage.skipped;
    read.messages.insert(read.messages.end(), stage.messages.begin(), stage.messages.end());
  }
  return read;
}

// Stops by default; with ignore_errors `whole` are read, and each message has one of `named`.
void expect_skipped(const Dataset& data, const std::vector<std::string>& whole,
                    const std::vector<std::string>& named) {
  expect_data_error([&] { read_all(data); }, named[0]);
  for (const bool shuffled : {false, true}) {
    Read read = read_all((shuffled ? data.shuffle() : data).ignore_errors());
    if (shuffled) std::sort(read.texts.begin(), read.texts.end());
    EXPECT_EQ(read.texts, whole);
    EXPECT_EQ(read.skipped, static_cast<int64_t>(named.size()));
    for (const std::string& part : named)
      EXPECT_TRUE(std::any_of(
          read.messages.begin(), read.messages.end(),
          [&](const std::string& message) { return message.find(part) != std::string::npos; }))
          << part;
  }
}

std::string records(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const RecordFrame frame = record_frame(text);
    bytes += frame.head + text + frame.tail;
  }
  return bytes;
}

TEST(Damage, TruncatedRecordsLeaveTheOthers) {
  const TempFolder folder;
  const std::string whole = records({"a", "bb", "ccc"});
  std::string wrong_length = records({"g", "h", "i"});
  wrong_length[17] ^= 1;  // of the second record
  const std::vector<std::string> files{
      write_bytes(folder / "0.tfrecord", whole),
      write_bytes(folder / "cut.tfrecord", records({"d", "e", "f"}).substr(0, 17 + 17 + 5)),
      write_bytes(folder / "short.tfrecord", records({"f2", "gone"}).substr(0, 18 + 12 + 3)),
      write_bytes(folder / "length.tfrecord", wrong_length),
      write_bytes(folder / "none.tfrecord", "no records at all"),
      write_bytes(folder / "empty.tfrecord", ""),
      write_bytes(folder / "9.tfrecord", records({"j"}))};
  expect_skipped(tfrecord_dataset(files), {"a", "bb", "ccc", "d", "e", "f2", "g", "j"},
                 {"cut.tfrecord", "short.tfrecord", "length.tfrecord", "none.tfrecord"});
}

TEST(Damage, RecordsWhoseLengthLooksLikeCompression) {
  const TempFolder folder;
  // 376 is 78 01, as zlib begins; 35615 is 1F 8B, as gzip does.
  for (const size_t length : {376, 35615, 40056, 559903}) {
    const std::string path = write_bytes(folder / "r", records({std::string(length, 'x'), "y"}));
    EXPECT_FALSE(is_compressed_tfrecord(path));
    const Read read = read_all(tfrecord_dataset({path}));
    ASSERT_EQ(read.texts.size(), 2u) << length;
    EXPECT_EQ(read.texts[0].size(), length);
    const std::string packed =
        write_bytes(folder / "z", test::compress(records({std::string(length, 'x')}), 15));
    EXPECT_TRUE(is_compressed_tfrecord(packed));
    EXPECT_EQ(read_all(tfrecord_dataset({packed}, {.max_bytes = kMiB})).texts.size(), 1u);
  }
  // Text that begins as zlib does is text.
  const std::string text = write_bytes(folder / "t.txt", "x^2 + y^2\nx^3\n");
  EXPECT_EQ(read_all(text_line_dataset({text})).texts,
            (std::vector<std::string>{"x^2 + y^2", "x^3"}));
  const std::string table = write_bytes(folder / "t.csv", "x^2,y\n1,2\n");
  EXPECT_EQ(csv_dataset({table}, {{"x^2", Dtype::int64, Shape()}}).iterate().next().has_value(),
            true);
}

TEST(Damage, SamplesOfArchives) {
  const TempFolder folder;
  const std::string end(1024, '\0');
  const auto sample = [](const std::string& key) {
    return tar_entry(key + ".txt", key) + tar_entry(key + ".cls", "0");
  };
  std::string bad_sum = tar_entry("e.txt", "e");
  bad_sum[150] ^= 1;
  std::string link = tar_entry("link.txt", "");
  link.replace(148, 8, "        ");
  link[156] = '2';
  unsigned sum = 0;
  for (unsigned char c : link) sum += c;
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06o", sum);
  link.replace(148, 7, std::string(digits, 7));
  const std::vector<std::string> files{
      write_bytes(folder / "0.tar", sample("a") + tar_entry("b.txt", "b") + sample("c") + end),
      write_bytes(folder / "1.tar", tar_entry("d1.txt", "d1") + tar_entry("../x.txt", "evil") +
                                        tar_entry("d1.cls", "1") + link + sample("d2") + end),
      write_bytes(folder / "2.tar", sample("d3") + bad_sum + sample("never found") + end),
      write_bytes(folder / "3.tar", sample("f") + sample("g") + tar_entry("f.txt", "again") +
                                        tar_entry("g.cls", "again") + end),
      write_bytes(folder / "4.tar", sample("h") + tar_entry("i.txt", "i").substr(0, 512 + 0)),
      write_bytes(folder / "5.tar", test::gzip(sample("packed") + end) + end),
      write_bytes(folder / "6.tar", sample("k") + end)};
  expect_skipped(tar_dataset(files, {"txt", "cls"}),
                 {"a", "c", "d1", "d2", "d3", "f", "g", "h", "k"},
                 {"sample b: expected a part cls", "'../x.txt'", "'link.txt' of type '2'",
                  "2.tar, byte 2048", "'f.txt' again", "'g.cls' again", "4.tar", "5.tar"});
}

TEST(Damage, ImagesOfArchives) {
  const TempFolder folder;
  const std::vector<uint8_t> pixels(4 * 4 * 3, 7);
  const std::string image = encode_png(pixels.data(), {4, 4}, 3), end(1024, '\0');
  const std::string shard = write_bytes(
      folder / "s.tar", tar_entry("a.png", image) + tar_entry("a.cls", "0") +
                            tar_entry("b.png", image) + tar_entry("c.cls", "1") +
                            tar_entry("d.png", image) + tar_entry("d.cls", "1") +
                            tar_entry("e.png", "no image") + tar_entry("e.cls", "1") + end);
  const std::string one(4 * 4 * 3, 7);
  expect_skipped(tar_image_dataset({shard}, {.image_size = {4, 4}}), {one, one},
                 {"b: expected an image", "sample c", "s.tar: e"});
  // Training: before the first step, or what is left.
  expect_data_error([&] { tar_image_source({shard}, {4, 4}, 1); }, "no class");
  ::testing::internal::CaptureStderr();
  const std::unique_ptr<Source> source = tar_image_source({shard}, {4, 4}, 1, OnError::skip);
  EXPECT_EQ(source->size(), 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("sample b"), std::string::npos) << said;
  EXPECT_NE(said.find("skipped 3 samples in all, 2 are left"), std::string::npos) << said;
  const std::string bad = write_bytes(folder / "bad.tar", tar_entry("b.png", image) + end);
  ::testing::internal::CaptureStderr();
  expect_data_error(
      [&] {
        tar_image_source({bad}, {4, 4}, 1, OnError::skip);
      },
      "expected a sample that is whole");
  ::testing::internal::GetCapturedStderr();
}

TEST(Damage, RecordsOfOneLength) {
  const TempFolder folder;
  const std::vector<std::string> files{
      write_bytes(folder / "0", "HaabbF"), write_bytes(folder / "cut", "HccdF"),
      write_bytes(folder / "tiny", "H"), write_bytes(folder / "3", "HeeF")};
  expect_skipped(fixed_length_record_dataset(files, 2, {.header_bytes = 1, .footer_bytes = 1}),
                 {"aa", "bb", "ee"}, {"cut: expected", "tiny: expected"});
  const std::string record = '\3' + std::string(3072, 'p'), pixels(3072, 'p');
  const std::vector<std::string> batches{
      write_bytes(folder / "data_batch_1.bin", record + record + record.substr(0, 100)),
      write_bytes(folder / "data_batch_2.bin", ""),
      write_bytes(folder / "data_batch_3.bin", record + '\77' + pixels)};
  expect_skipped(cifar_dataset(batches, CifarKind::cifar10), {pixels},
                 {"data_batch_1.bin", "data_batch_2.bin", "label from 0 to 9"});
  expect_data_error([&] { cifar_sources(folder.path()); }, "data_batch_1.bin");
  const std::unique_ptr<Source> source =
      through_pipeline(cifar_sources(folder.path(), OnError::skip).train, OnError::skip);
  std::string x(4 * 3072, '\0');
  std::vector<int32_t> y(4);
  const std::vector<int64_t> all{0, 1, 2, 3};
  const std::vector<void*> places{x.data(), y.data()};
  ::testing::internal::CaptureStderr();
  source->read(all, places);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("data_batch_2.bin"), std::string::npos);
  EXPECT_EQ(y, std::vector<int32_t>(4, 3));
  EXPECT_EQ(x, std::string(4 * 3072, 'p'));
}

}  // namespace
}  // namespace pl::damage_test

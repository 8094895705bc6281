// Data sets over files of records: TensorFlow's own, and damaged ones.
#include "data/pipeline/file_sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::file_sources_test {
namespace {

using test::expect_data_error;
using test::golden_file;
using test::read_bytes;
using test::tar_entry;
using test::TempFolder;
using test::write_bytes;

std::string text_of(const Tensor& tensor) {
  return {tensor.data_as<const char>(), static_cast<size_t>(tensor.meta().bytes())};
}

std::vector<std::string> texts(const Dataset& data, uint64_t epoch = 0) {
  std::vector<std::string> list;
  DatasetIterator iterator = data.iterate(epoch);
  for (Element element; iterator.next(element);) list.push_back(text_of(element[0]));
  return list;
}

const std::vector<FieldSpec> kLabel{{"label", Dtype::int64, Shape{1}}};

TEST(TfRecordDataset, ReadsTensorFlowsExamplesPlainAndCompressed) {
  for (const char* name : {"tf.tfrecord", "tf.tfrecord.gz", "tf.tfrecord.zlib"}) {
    const Dataset records = tfrecord_dataset({golden_file("formats/" + std::string(name))});
    EXPECT_EQ(records.stage()->indexable(), std::string(name) == "tf.tfrecord");
    EXPECT_EQ(numbers(parse_examples(records, kLabel, {.num_parallel_calls = 2})),
              (std::vector<int64_t>{3, 7, -1}));
  }
  const std::string plain = golden_file("formats/tf.tfrecord");
  const Dataset twice = tfrecord_dataset({plain, plain});
  EXPECT_EQ(twice.cardinality(), 6);
  std::vector<int64_t> labels = numbers(parse_examples(twice, kLabel).shuffle());
  std::sort(labels.begin(), labels.end());
  EXPECT_EQ(labels, (std::vector<int64_t>{-1, -1, 3, 3, 7, 7}));
  // The index knows the longest record, and the bound is no larger.
  EXPECT_LT(twice.minimum_bytes(), 64 * kKiB);
}

TEST(TfRecordDataset, AWrongCheckSumStopsOrIsSkipped) {
  const TempFolder folder;
  std::string bytes = read_bytes(golden_file("formats/tf.tfrecord"));
  bytes[12 + 5] ^= 1;  // in the first record
  write_bytes(folder / "bad.tfrecord", bytes);
  const Dataset data = parse_examples(tfrecord_dataset({folder / "bad.tfrecord"}), kLabel);
  expect_data_error([&] { numbers(data); }, "bad.tfrecord");
  EXPECT_EQ(numbers(data.ignore_errors()), (std::vector<int64_t>{7, -1}));
}

TEST(TfRecordDataset, FeaturesThatAreNotThereAreNamed) {
  const Dataset records = tfrecord_dataset({golden_file("formats/tf.tfrecord")});
  expect_data_error(
      [&] {
        numbers(parse_examples(records, {{"age", Dtype::int64, Shape()}}));
      },
      "feature age: expected one");
  expect_data_error(
      [&] {
        numbers(parse_examples(records, {{"label", Dtype::float32, Shape{1}}}));
      },
      "feature label: expected 1 floats");
  EXPECT_THROW(parse_examples(records, {{"label", Dtype::uint8, Shape{3}}}), UserError);
}

TEST(TextLines, AreCutAtTheirEnds) {
  const TempFolder folder;
  write_bytes(folder / "a.txt", "one\ntwo\r\n\nlast");
  write_bytes(folder / "b.txt", "");
  write_bytes(folder / "c.txt", std::string(40'000, 'x') + "\n");
  const Dataset lines = text_line_dataset(list_files(folder / "*.txt"));
  const std::vector<std::string> wanted{"one", "two", "", "last", std::string(40'000, 'x')};
  EXPECT_EQ(texts(lines), wanted);
  DatasetIterator iterator = lines.iterate();
  iterator.advance(3);
  EXPECT_EQ(text_of(iterator.next().value()[0]), "last");
  expect_data_error([&] { texts(text_line_dataset({folder / "c.txt"}, {.max_bytes = "20KiB"})); },
                    "c.txt");
  expect_data_error([&] { list_files(folder / "*.csv"); }, "expected files that match");
}

TEST(CsvDataset, ReadsColumnsByName) {
  const TempFolder folder;
  write_bytes(folder / "t.csv", "a,b,c\n1,0.5,7\n2,\"1.5\",8\n");
  const Dataset data = csv_dataset({folder / "t.csv"},
                                   {{"c", Dtype::int64, Shape()}, {"b", Dtype::float32, Shape()}});
  EXPECT_EQ(numbers(data), (std::vector<int64_t>{7, 8}));
  DatasetIterator iterator = data.batch(2).iterate();
  EXPECT_EQ(iterator.next().value()[1].data_as<float>()[1], 1.5f);
  write_bytes(folder / "q.csv", "a\n\"open\n");
  expect_data_error(
      [&] {
        numbers(csv_dataset({folder / "q.csv"}, {{"a", Dtype::int64, Shape()}}));
      },
      "q.csv");
  expect_data_error(
      [&] {
        numbers(csv_dataset({folder / "t.csv"}, {{"d", Dtype::int64, Shape()}}));
      },
      "expected a column d");
  expect_data_error(
      [&] {
        numbers(csv_dataset({folder / "t.csv"}, {{"b", Dtype::int64, Shape()}}));
      },
      "line 2, column b");
}

TEST(TarDataset, SamplesAreNeighboursOfOneName) {
  const TempFolder folder;
  std::string tar;
  for (int i = 0; i < 5; ++i)
    tar += tar_entry("s" + std::to_string(i) + ".txt", "text " + std::to_string(i)) +
           tar_entry("s" + std::to_string(i) + ".cls", std::to_string(i));
  write_bytes(folder / "x.tar", tar + std::string(1024, '\0'));
  const Dataset data = tar_dataset({folder / "x.tar"}, {"cls", "txt"});
  EXPECT_EQ(data.cardinality(), 5);
  EXPECT_EQ(texts(data), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  std::vector<std::string> mixed = texts(data.shuffle());
  std::sort(mixed.begin(), mixed.end());
  EXPECT_EQ(mixed, texts(data));
  expect_data_error([&] { texts(tar_dataset({folder / "x.tar"}, {"jpg"})); },
                    "sample s0: expected a part jpg");
  // Text is no image, and says so.
  expect_data_error(
      [&] {
        texts(decode_images(data, "txt", {.size = {4, 4}}));
      },
      "expected a JPEG, PNG or BMP");
}

// Numbers of a field, the skipped ones' messages in `report`.
std::vector<float> floats_of(const Dataset& data, PipelineReport& report) {
  std::vector<float> list;
  DatasetIterator iterator = data.iterate();
  for (Element e; iterator.next(e);) list.push_back(*e[0].data_as<float>());
  report = iterator.report();
  return list;
}

TEST(FileSources, ABadRowIsSkippedAlone) {
  const TempFolder folder;
  const std::string one = write_bytes(
      folder / "1.csv", "a,b\n1,1\n2,x\n3,3\n4\n5,5\n6,\"6\"6\n7,7\n8,8\"\n9,9\n10,\"open\n");
  const std::string other = write_bytes(folder / "2.csv", "b\n1\n");  // no column a
  const std::string last = write_bytes(folder / "3.csv", "b,a\n11,11\n");
  const Dataset rows = csv_dataset(
      {one, other, last}, {{"a", Dtype::float32, Shape()}, {"b", Dtype::float32, Shape()}});
  PipelineReport report;
  EXPECT_EQ(floats_of(rows.ignore_errors(), report), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(report.stages.back().skipped, 6);
  ASSERT_EQ(report.stages.back().messages.size(), 6U);
  for (const auto& [at, part] :
       std::vector<std::pair<size_t, std::string>>{{0, "1.csv, line 3, column b"},
                                                   {1, "1.csv, line 5"},
                                                   {2, "1.csv, line 7"},
                                                   {3, "1.csv, line 9"},
                                                   {4, "1.csv, line 11"},
                                                   {5, "2.csv: expected a column a"}})
    EXPECT_NE(report.stages.back().messages[at].find(part), std::string::npos)
        << report.stages.back().messages[at];
  EXPECT_THROW(
      csv_dataset({write_bytes(folder / "t.csv", "a,a\n1,2\n")}, {{"a", Dtype::float32, Shape()}})
          .iterate()
          .next(),
      DataError);
}

TEST(FileSources, ADamagedFileIsLeftAndTheNextOneGoesOn) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += std::to_string(i) + "\n";
  std::string packed = test::gzip(text);
  const std::string cut = write_bytes(folder / "1.gz", packed.substr(0, packed.size() / 2));
  const std::string good =
      write_bytes(folder / "2[x].gz", test::gzip("a\n" + std::string(99, 'b') + "\n\nc"));
  DatasetIterator lines =
      text_line_dataset({cut, good}, {.max_bytes = 64}).ignore_errors().iterate();
  std::vector<std::string> tail;
  for (Element e; lines.next(e);)
    tail.emplace_back(e[0].data_as<char>(), static_cast<size_t>(e[0].meta().bytes()));
  ASSERT_GT(tail.size(), 1000U);
  EXPECT_EQ((std::vector<std::string>(tail.end() - 3, tail.end())),
            (std::vector<std::string>{"a", "", "c"}));
  EXPECT_EQ(lines.report().stages.back().skipped, 2);
  EXPECT_EQ(list_files(good), std::vector<std::string>{good});

  std::string records = test::read_bytes(test::golden_file("formats/tf.tfrecord"));
  const Dataset whole = tfrecord_dataset({write_bytes(folder / "w.gz", test::gzip(records))});
  const auto count = [](const Dataset& data) {
    int64_t found = 0;
    DatasetIterator iterator = data.ignore_errors().iterate();
    while (iterator.next()) ++found;
    return found;
  };
  const int64_t all = count(whole);
  records[40] = static_cast<char>(records[40] ^ 1);
  const std::string bad = write_bytes(folder / "b.gz", test::gzip(records));
  EXPECT_EQ(count(tfrecord_dataset({bad, folder / "w.gz"})), 2 * all - 1);
}

}  // namespace
}  // namespace pl::file_sources_test

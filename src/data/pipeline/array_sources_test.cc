// Records of one length: CIFAR's files, NumPy's arrays, records as such.
#include <gtest/gtest.h>

#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::array_sources_test {
namespace {

using test::expect_data_error;
using test::TempFolder;
using test::write_bytes;
using List = std::vector<int64_t>;

// Planes that tell place and colour; labels first.
std::string cifar_record(int n, const std::vector<int>& labels) {
  std::string record;
  for (const int label : labels) record += static_cast<char>(label);
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) record += static_cast<char>((n * 50 + c * 100 + p) % 256);
  return record;
}

List labels(const Dataset& data) {
  List list;
  for (const Element& e : data) list.push_back(*e[1].data_as<int32_t>());
  return list;
}

TEST(Cifar, PlanesBecomePixelsAndLabelsAreChecked) {
  const TempFolder folder;
  const auto ten = [&](const std::string& name, const std::vector<int>& of) {
    std::string bytes;
    for (const int label : of) bytes += cifar_record(label, {label});
    return write_bytes(folder / name, bytes);
  };
  const std::string one = ten("data_batch_1.bin", {3, 9}), two = ten("data_batch_2.bin", {0}),
                    test = ten("test_batch.bin", {5});
  const Dataset data = cifar_dataset({one, two}, CifarKind::cifar10);
  EXPECT_EQ(data.element_spec().text(), "x: uint8 (32, 32, 3), y: int32 ()");
  EXPECT_EQ(labels(data), (List{3, 9, 0}));
  for (const Element& e : data.skip(1).take(1))
    for (int64_t i = 0; i < 32 * 32 * 3; ++i)
      ASSERT_EQ(e[0].data_as<uint8_t>()[i], (9 * 50 + i % 3 * 100 + i / 3) % 256) << i;
  // As what training reads: the folder is known by its names.
  const Sources sources = open_source(folder.path());
  EXPECT_EQ(sources.train->size(), 3);
  EXPECT_EQ(sources.test->size(), 1);
  EXPECT_EQ(sources.train->fields()[1].range->high, 9);
  int32_t y = -1;
  void* const to[2] = {nullptr, &y};
  const int64_t index = 1;
  sources.train->read({&index, 1}, to);
  EXPECT_EQ(y, 9);

  const std::string hundred =
      write_bytes(folder / "train.bin", cifar_record(0, {7, 42}) + cifar_record(1, {19, 99}));
  EXPECT_EQ(labels(cifar_dataset({hundred}, CifarKind::cifar100)), (List{42, 99}));
  EXPECT_EQ(labels(cifar_dataset({hundred}, CifarKind::cifar100_coarse)), (List{7, 19}));

  ten("data_batch_2.bin", {10});
  expect_data_error([&] { labels(cifar_dataset({two}, CifarKind::cifar10)); },
                    "record 0: expected a label from 0 to 9, received 10");
  // Before any of its records, and when it is read.
  const auto first = [](const Dataset& data) { data.iterate().next(); };
  expect_data_error([&] { first(cifar_dataset({hundred}, CifarKind::cifar10)); },
                    "records of 3073 bytes");
  expect_data_error([&] { first(cifar_dataset({write_bytes(one, "")}, CifarKind::cifar10)); },
                    "records");
}

std::vector<std::string> records(const Dataset& data) {
  std::vector<std::string> list;
  for (const Element& e : data)
    list.emplace_back(e[0].data_as<const char>(), static_cast<size_t>(e[0].meta().bytes()));
  return list;
}

TEST(FixedLengthRecords, PlainByNumberCompressedAsAStream) {
  const TempFolder folder;
  const std::string one = write_bytes(folder / "a", "HHabcdefF"),
                    two = write_bytes(folder / "b", "HHghiF");
  const FixedLengthOptions options{.header_bytes = 2, .footer_bytes = 1, .compressed = true};
  const Dataset plain = fixed_length_record_dataset({one, two}, 3, options);
  EXPECT_EQ(plain.cardinality(), 3);
  EXPECT_EQ(plain.element_spec().text(), "record: uint8 (3,)");
  EXPECT_EQ(records(plain), (std::vector<std::string>{"abc", "def", "ghi"}));
  EXPECT_EQ(records(plain.skip(2)), (std::vector<std::string>{"ghi"}));
  const std::string packed = write_bytes(folder / "c", test::gzip("HHabcdefF"));
  EXPECT_EQ(records(fixed_length_record_dataset({packed, two}, 3, options)),
            (std::vector<std::string>{"abc", "def", "ghi"}));
  expect_data_error([&] { fixed_length_record_dataset({one}, 4, options).iterate().next(); },
                    "records of 4");
  expect_data_error([&] { records(fixed_length_record_dataset({packed}, 4, options)); },
                    "records of 4 bytes and a footer of 1");
  expect_data_error([&] { fixed_length_record_dataset({folder / "none"}, 4); }, "none");
  EXPECT_THROW(fixed_length_record_dataset({one}, 0), UserError);
  EXPECT_THROW(fixed_length_record_dataset({}, 4), UserError);
}

TEST(Npy, RowsStayOnDisk) {
  const TempFolder folder;
  const std::string x = write_bytes(
      folder / "x.npy", test::npy_of("<f4", "(3, 2)", test::raw<float>({1, 2, 3, 4, 5, 6})));
  const std::string y =
      write_bytes(folder / "y.npy", test::npy_of("<i8", "(3,)", test::raw<int64_t>({2, 0, 1})));
  const Dataset alone = npy_dataset(x);
  EXPECT_EQ(alone.element_spec().text(), "x: float32 (2,)");
  EXPECT_EQ(alone.cardinality(), 3);
  float last = 0;
  for (const Element& e : alone) last = e[0].data_as<float>()[1];
  EXPECT_EQ(last, 6);
  EXPECT_EQ(numbers(npy_dataset(y)), (List{2, 0, 1}));
  EXPECT_EQ(labels(npy_dataset(x, y)), (List{2, 0, 1}));
  EXPECT_EQ(npy_dataset(x, y).element_spec().text(), "x: float32 (2,), y: int32 ()");
  // An object is a pickle, which runs what it likes: never.
  expect_data_error(
      [&] { npy_dataset(write_bytes(x, test::npy_of("|O", "(3,)", std::string(24, 'x')))); },
      "'|O'");
  expect_data_error([&] { npy_dataset(y, folder / "none.npy"); }, "none.npy");
}

TEST(Synthetic, IsADataSetToo) {
  const Dataset data =
      synthetic_dataset({.x = {Dtype::float32, Shape{4}}, .classes = 3, .samples = 8, .seed = 1});
  EXPECT_EQ(data.cardinality(), 8);
  for (const int64_t label : labels(data)) EXPECT_LT(label, 3);
}

// A snapshot of files that have changed is not one of these files.
TEST(Snapshot, FollowsTheFiles) {
  const TempFolder folder;
  const std::string path = write_bytes(folder / "a", "abcdef");
  const auto run = [&] {
    return records(fixed_length_record_dataset({path}, 3).snapshot(folder / "kept"));
  };
  EXPECT_EQ(run(), (std::vector<std::string>{"abc", "def"}));
  write_bytes(path, "ghijkl");
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(run(), (std::vector<std::string>{"ghi", "jkl"}));
}

}  // namespace
}  // namespace pl::array_sources_test

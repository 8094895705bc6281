#include "data/source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/data_files.h"

namespace pl::source_test {
namespace {

using test::big;
using test::expect_data_error;
using test::npy_of;
using test::raw;
using test::TempCache;
using test::write_bytes;
using test::zip;

// All of a batch, as bytes, one string a field.
std::vector<std::string> read_all(Source& source, const std::vector<int64_t>& indices) {
  std::vector<std::string> bytes;
  std::vector<void*> destinations;
  for (const Field& field : source.fields())
    bytes.emplace_back(static_cast<size_t>(field.sample.bytes()) * indices.size(), '\0');
  for (std::string& field : bytes) destinations.push_back(field.data());
  source.read(indices, destinations);
  return bytes;
}

std::unique_ptr<Source> npz_of(const TempCache& folder, const std::string& x,
                               const std::string& y) {
  return npz_source(write_bytes(folder / "f.npz", zip({{"x.npy", x}, {"y.npy", y}})));
}

const std::string kX = npy_of("|u1", "(4, 2)", "aAbBcCdD");
const std::string kY = npy_of("<i8", "(4,)", raw<int64_t>({3, 0, 2, 3}));

TEST(NpzSource, ReadsRunsAndScatteredIndices) {
  const TempCache folder;
  const auto source = npz_of(folder, kX, kY);
  EXPECT_EQ(source->size(), 4);
  ASSERT_EQ(source->fields().size(), 2u);
  EXPECT_EQ(source->fields()[0].name, "x");
  EXPECT_EQ(source->fields()[0].sample, (Meta{Dtype::uint8, {2}}));
  EXPECT_EQ(source->fields()[1].sample, (Meta{Dtype::int32, {}}));
  EXPECT_EQ(source->fields()[1].range->low, 0);
  EXPECT_EQ(source->fields()[1].range->high, 3);
  EXPECT_LT(source->resident_bytes(), 64 * kKiB);
  const auto batch = read_all(*source, {2, 3, 0, 1, 1, 2});
  EXPECT_EQ(batch[0], "cCdDaAbBbBcC");
  EXPECT_EQ(batch[1], raw<int32_t>({2, 3, 3, 0, 0, 2}));
  EXPECT_EQ(read_all(*source, {})[0], "");
}

TEST(NpzSource, LeavesOutFieldsWithoutDestination) {
  const TempCache folder;
  const auto source = npz_of(folder, kX, kY);
  const std::vector<int64_t> indices{1};
  int32_t label = -1;
  source->read(indices, std::vector<void*>{nullptr, &label});
  EXPECT_EQ(label, 0);
  EXPECT_THROW(source->read(std::vector<int64_t>{4}, std::vector<void*>{nullptr, &label}),
               InternalError);
}

TEST(NpzSource, ConvertsIntegersAndKeepsFloats) {
  const TempCache folder;
  const auto check_x = [&](const std::string& x, Dtype dtype, const std::string& expected) {
    const auto source = npz_of(folder, x, npy_of("|u1", "(2,)", std::string("\1\0", 2)));
    EXPECT_EQ(source->fields()[0].sample.dtype, dtype);
    EXPECT_EQ(read_all(*source, {0, 1})[0], expected);
  };
  check_x(npy_of("|i1", "(2,)", raw<int8_t>({-1, 5})), Dtype::int32, raw<int32_t>({-1, 5}));
  check_x(npy_of("<i2", "(2,)", raw<int16_t>({-300, 300})), Dtype::int32,
          raw<int32_t>({-300, 300}));
  check_x(npy_of("<u2", "(2,)", raw<uint16_t>({65535, 1})), Dtype::int32, raw<int32_t>({65535, 1}));
  check_x(npy_of("<i4", "(2,)", raw<int32_t>({-7, 7})), Dtype::int32, raw<int32_t>({-7, 7}));
  check_x(npy_of("<u4", "(2,)", raw<uint32_t>({UINT32_MAX, 1})), Dtype::int64,
          raw<int64_t>({UINT32_MAX, 1}));
  check_x(npy_of("<i8", "(2,)", raw<int64_t>({INT64_MIN, 1})), Dtype::int64,
          raw<int64_t>({INT64_MIN, 1}));
  check_x(npy_of("<u8", "(2,)", raw<uint64_t>({INT64_MAX, 1})), Dtype::int64,
          raw<int64_t>({INT64_MAX, 1}));
  check_x(npy_of("<f8", "(2,)", raw<double>({0.1, -1})), Dtype::float64, raw<double>({0.1, -1}));
  check_x(npy_of("|b1", "(2,)", std::string("\1\0", 2)), Dtype::boolean, std::string("\1\0", 2));
  const auto dense = npz_of(folder, kX, npy_of("<f4", "(4, 1)", raw<float>({1, 2, 3, 4})));
  EXPECT_EQ(dense->fields()[1].sample, (Meta{Dtype::float32, {1}}));
  EXPECT_FALSE(dense->fields()[1].range);
  const auto column = npz_of(folder, kX, npy_of("<i4", "(4, 1)", raw<int32_t>({1, 2, 3, 4})));
  EXPECT_EQ(column->fields()[1].sample, (Meta{Dtype::int32, {}}));
}

TEST(NpzSource, RefusesWhatCannotBeTrainedOn) {
  const TempCache folder;
  const auto refused = [&](const std::string& x, const std::string& y, const std::string& part) {
    expect_data_error([&] { npz_of(folder, x, y); }, part);
  };
  refused(kX, npy_of("<i4", "(3,)", raw<int32_t>({0, 1, 2})), "as many samples");
  refused(kX, npy_of("<i4", "(4,)", raw<int32_t>({0, -1, 2, 1})), "number the classes from 0");
  refused(kX, npy_of("<i8", "(4,)", raw<int64_t>({0, 1, int64_t{1} << 31, 0})), "2147483647");
  refused(kX, npy_of("<u8", "(4,)", raw<uint64_t>({0, 1, UINT64_MAX, 0})), "below 2^63");
  refused(kX, npy_of("|b1", "()", "\1"), "at least one sample");
  refused(npy_of("|u1", "(0, 2)", ""), npy_of("|u1", "(0,)", ""), "at least one sample");
  refused(npy_of("|u1", "(4, 0)", ""), kY, "at least one element");
  refused(npy_of("|u1", "(9223372036854775807, 0)", ""), kY, "");
  expect_data_error(
      [&] {
        npz_source(write_bytes(folder / "f.npz", zip({{"a.npy", kX}, {"y.npy", kY}})));
      },
      "received a, y");
  const auto source = npz_of(folder, npy_of("|b1", "(4,)", std::string("\0\1\2\0", 4)), kY);
  expect_data_error([&] { read_all(*source, {0, 1, 2, 3}); }, "values from 0 to 1");
}

// Kernels index with labels, so a file that changes under us must not reach them. Small arrays are
// held in memory; these are larger.
TEST(NpzSource, NoticesLabelsThatChangeAfterOpening) {
  const TempCache folder;
  const size_t count = 50'000;
  const std::string labels = raw(std::vector<int64_t>(count, 3));
  const auto source = npz_of(folder, npy_of("|u1", "(50000,)", std::string(count, 'x')),
                             npy_of("<i8", "(50000,)", labels));
  EXPECT_EQ(read_all(*source, {49'999, 0})[1], raw<int32_t>({3, 3}));
  std::string bytes = test::read_bytes(folder / "f.npz");
  const size_t at = bytes.find(labels);
  bytes.replace(at, 8, raw<int64_t>({1'000'000}));
  write_bytes(folder / "f.npz", bytes);
  expect_data_error([&] { read_all(*source, {0}); }, "values from 3 to 3");
  write_bytes(folder / "f.npz", bytes.substr(0, at));
  expect_data_error([&] { read_all(*source, {3}); }, "shorter");
}

TEST(NpzSource, SmallArraysAreHeldAndLargeOnesAreNot) {
  const TempCache folder;
  const auto of = [&](const std::string& n, size_t count) {
    return npz_of(folder, npy_of("|u1", "(" + n + ", 8)", std::string(8 * count, 'x')),
                  npy_of("|u1", "(" + n + ",)", std::string(count, '\1')));
  };
  EXPECT_LT(of("1000", 1000)->resident_bytes(), 16 * kKiB);
  const auto large = of("100000", 100'000);  // x is on disk, y is held
  EXPECT_GT(large->resident_bytes(), 100'000);
  EXPECT_LT(large->resident_bytes(), 110'000);
  EXPECT_EQ(read_all(*large, {5})[0], "xxxxxxxx");
}

TEST(OpenSource, FindsIdxFilesInAFolder) {
  const TempCache folder;
  const std::string images = std::string("\0\0\x08\3", 4) + big(2) + big(2) + big(1) + "abcd";
  const std::string labels = std::string("\0\0\x08\1", 4) + big(2) + "\x05\x09";
  write_bytes(folder / "train-images-idx3-ubyte.gz", test::gzip(images));
  expect_data_error([&] { open_source(folder.path()); }, "without the labels");
  write_bytes(folder / "train-labels-idx1-ubyte", labels);
  Sources sources = open_source(folder.path());
  EXPECT_EQ(sources.test, nullptr);
  EXPECT_EQ(sources.train->fields()[0].sample, (Meta{Dtype::uint8, {2, 1, 1}}));
  EXPECT_EQ(read_all(*sources.train, {1, 0}),
            (std::vector<std::string>{"cdab", raw<int32_t>({9, 5})}));
  write_bytes(folder / "t10k-images-idx3-ubyte", images);
  expect_data_error([&] { open_source(folder.path()); }, "t10k-labels");
  write_bytes(folder / "t10k-labels-idx1-ubyte", labels);
  EXPECT_EQ(open_source(folder.path()).test->size(), 2);
  // Labels where images belong.
  expect_data_error(
      [&] { idx_source(folder / "train-labels-idx1-ubyte", folder / "train-labels-idx1-ubyte"); },
      "(N, H, W)");
}

TEST(OpenSource, SaysWhatIsAccepted) {
  const TempCache folder;
  for (const std::string& spec :
       {std::string("mnist"), std::string(""), folder / "missing",
        write_bytes(folder / "data.csv", "1,2"), std::string("/dev/null")})
    expect_data_error([&] { open_source(spec); }, "fashion-mnist, FILE.npz");
  expect_data_error([&] { open_source(folder / "none.npz"); }, "No such file");
  expect_data_error([&] { open_source(folder.path()); }, "train-images-idx3-ubyte");
  expect_data_error([&] { fashion_mnist_source(Part::train, folder.path()); },
                    "dataset-fashion-mnist");
}

TEST(FashionMnist, ReadsTheDebianPackage) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const TempCache folder;
  const auto test = fashion_mnist_source(Part::test);
  EXPECT_EQ(test->size(), 10'000);
  EXPECT_EQ(test->fields()[0].sample, (Meta{Dtype::uint8, {28, 28, 1}}));
  EXPECT_EQ(test->fields()[1].range->high, 9);
  const auto batch = read_all(*test, {0, 9'999});
  // The first image is an ankle boot, the last a sandal, says the dataset's own page.
  EXPECT_EQ(batch[1], raw<int32_t>({9, 5}));
  EXPECT_EQ(read_all(*test, {9'999})[0], batch[0].substr(784));
}

SyntheticSpec spec_of(Dtype dtype) {
  SyntheticSpec spec;
  spec.x = {dtype, {50, 40}};
  spec.vocabulary = 100;
  spec.classes = 10;
  spec.samples = 8;
  return spec;
}

TEST(Synthetic, IsTheSameForTheSameSeed) {
  for (Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::uint8, Dtype::int32}) {
    SyntheticSpec spec = spec_of(dtype);
    const auto a = synthetic_source(spec), b = synthetic_source(spec);
    const auto all = read_all(*a, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(all, read_all(*b, {0, 1, 2, 3, 4, 5, 6, 7}));
    const size_t row = static_cast<size_t>(spec.x.bytes());
    EXPECT_EQ(read_all(*b, {5})[0], all[0].substr(5 * row, row));
    spec.seed = 1;
    EXPECT_NE(read_all(*synthetic_source(spec), {0, 1, 2, 3, 4, 5, 6, 7}), all);
  }
}

TEST(Synthetic, ValuesFillTheirRange) {
  SyntheticSpec spec = spec_of(Dtype::float32);
  const auto batch = read_all(*synthetic_source(spec), {0, 1, 2, 3, 4, 5, 6, 7});
  const auto* x = reinterpret_cast<const float*>(batch[0].data());
  const int count = 8 * 50 * 40;
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(x[i] >= -1 && x[i] < 1);
    sum += x[i];
    squares += x[i] * x[i];
  }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.02);
  // The same numbers in both precisions.
  spec.x.dtype = Dtype::float64;
  const auto wide = read_all(*synthetic_source(spec), {0, 1, 2, 3, 4, 5, 6, 7});
  for (int i = 0; i < count; ++i)
    ASSERT_EQ(reinterpret_cast<const double*>(wide[0].data())[i], x[i]);

  spec.x = {Dtype::int32, {1000}};
  spec.y = {1000};
  const auto tokens = read_all(*synthetic_source(spec), {0});
  std::set<int32_t> seen, labels;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(reinterpret_cast<const int32_t*>(tokens[0].data())[i]);
    labels.insert(reinterpret_cast<const int32_t*>(tokens[1].data())[i]);
  }
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 99);
  EXPECT_EQ(labels.size(), 10u);
  EXPECT_EQ(*labels.rbegin(), 9);
}

TEST(Synthetic, TargetsMayBeTheNextToken) {
  for (Dim length : {1, 6, 7}) {  // two tokens come from one number
    SyntheticSpec spec = spec_of(Dtype::int32);
    spec.x.shape = spec.y = {length};
    spec.classes = spec.vocabulary;
    spec.next_token = true;
    const auto both = read_all(*synthetic_source(spec), {0, 1});
    const auto* x = reinterpret_cast<const int32_t*>(both[0].data());
    const auto* y = reinterpret_cast<const int32_t*>(both[1].data());
    for (Dim sample : {0, 1})
      for (Dim t = 0; t + 1 < length; ++t)
        EXPECT_EQ(y[sample * length + t], x[sample * length + t + 1]) << sample << " " << t;
    EXPECT_LT(y[2 * length - 1], spec.vocabulary);
    spec.y = {length + 1};
    EXPECT_THROW(synthetic_source(spec), UserError);
  }
}

TEST(Synthetic, RefusesEmptySpecs) {
  SyntheticSpec spec = spec_of(Dtype::float32);
  spec.classes = 0;
  EXPECT_THROW(synthetic_source(spec), UserError);
  spec = spec_of(Dtype::bfloat16);
  EXPECT_THROW(synthetic_source(spec), UserError);
  spec = spec_of(Dtype::int32);
  spec.vocabulary = int64_t{1} << 31;
  EXPECT_THROW(synthetic_source(spec), UserError);
}

}  // namespace
}  // namespace pl::source_test

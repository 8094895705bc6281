// Files written by numpy and safetensors themselves; tests/golden/make_files.py made them.
#include <gtest/gtest.h>

#include <algorithm>

#include "data/npz.h"
#include "data/safetensors.h"
#include "data/source.h"
#include "tests/data_files.h"

namespace pl::golden_test {
namespace {

using test::expect_data_error;
using test::golden_file;
using test::raw;
using test::TempCache;

std::string read_field(Source& source, size_t field) {
  std::vector<int64_t> indices(static_cast<size_t>(source.size()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  const Bytes row = source.fields()[field].sample.bytes();
  std::string bytes(static_cast<size_t>(row) * indices.size(), '\0');
  std::vector<void*> destinations(2);
  destinations[field] = bytes.data();
  source.read(indices, destinations);
  return bytes;
}

template <class T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  if (!entry) return {};
  std::vector<T> values(static_cast<size_t>(entry->meta.elements()));
  file.read(*entry, values.data(), static_cast<Bytes>(values.size() * sizeof(T)));
  return values;
}

TEST(Golden, ReadsNpzOfNumpy) {
  const TempCache cache;
  for (const char* name : {"stored.npz", "compressed.npz"}) {
    const auto source = npz_source(golden_file(name));
    ASSERT_EQ(source->size(), 5);
    EXPECT_EQ(source->fields()[0].sample, (Meta{Dtype::uint8, {4, 3, 2}}));
    const std::string x = read_field(*source, 0);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(static_cast<unsigned char>(x[i]), i % 251) << name;
    EXPECT_EQ(read_field(*source, 1), raw<int32_t>({0, 3, 6, 2, 5}));
  }
}

TEST(Golden, ReadsDenseTargetsAndTokens) {
  const TempCache cache;
  const auto dense = npz_source(golden_file("dense.npz"));
  EXPECT_EQ(dense->fields()[0].sample, (Meta{Dtype::float32, {2}}));
  EXPECT_EQ(dense->fields()[1].sample, (Meta{Dtype::float64, {3}}));
  EXPECT_EQ(read_field(*dense, 0).substr(0, 12), raw<float>({-1, -0.75, -0.5}));
  EXPECT_EQ(read_field(*dense, 1).substr(0, 24), raw<double>({0, 0.125, 0.25}));
  const auto tokens = npz_source(golden_file("tokens.npz"));
  EXPECT_EQ(tokens->fields()[0].sample, (Meta{Dtype::int32, {4}}));
  EXPECT_EQ(tokens->fields()[0].range->high, 10);
  EXPECT_EQ(read_field(*tokens, 0), raw<int32_t>({0, 5, 10, 4, 9, 3, 8, 2}));
  EXPECT_EQ(read_field(*tokens, 1), raw<int32_t>({1, 6, 11, 5, 10, 4, 9, 3}));
}

TEST(Golden, RefusesWhatNumpyCanWriteAndWeCannotRead) {
  const TempCache cache;
  expect_data_error([] { npz_source(golden_file("fortran.npz")); }, "ascontiguousarray");
  expect_data_error([] { npz_source(golden_file("object.npz")); }, "pickled objects");
  expect_data_error([] { npz_source(golden_file("big_endian.npz")); }, "newbyteorder");
}

TEST(Golden, ReadsSafetensors) {
  const SafetensorsFile file(golden_file("small.safetensors"));
  EXPECT_EQ(file.entries().size(), 7u);
  EXPECT_EQ(read_tensor<float>(file, "dense/kernel"), (std::vector<float>{0, .5, 1, 1.5, 2, 2.5}));
  EXPECT_EQ(file.find("dense/kernel")->meta, (Meta{Dtype::float32, {2, 3}}));
  EXPECT_EQ(read_tensor<double>(file, "dense/bias"), (std::vector<double>{1.25, -2.5, 3.0}));
  EXPECT_EQ(read_tensor<int64_t>(file, "step"), (std::vector<int64_t>{7}));
  EXPECT_EQ(file.find("step")->meta.shape.rank(), 0);
  EXPECT_EQ(read_tensor<uint8_t>(file, "pixels"), (std::vector<uint8_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(read_tensor<uint16_t>(file, "half"), (std::vector<uint16_t>{0x3800, 0xBE00}));
  EXPECT_EQ(read_tensor<uint8_t>(file, "mask"), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(file.find("mask")->meta.dtype, Dtype::boolean);
  EXPECT_EQ(file.find("empty")->meta, (Meta{Dtype::float32, {0, 4}}));
  Metadata metadata = file.metadata();
  std::sort(metadata.begin(), metadata.end());  // the Rust writer's order varies
  EXPECT_EQ(metadata, (Metadata{{"format", "np"}, {"note", "caf\xC3\xA9 \"q\""}}));
  expect_data_error([] { SafetensorsFile other(golden_file("uint16.safetensors")); },
                    "tensor 'a': expected dtype F32");
}

}  // namespace
}  // namespace pl::golden_test

#include "data/safetensors.h"

#include <gtest/gtest.h>

#include "tests/data_files.h"

namespace pl::safetensors_test {
namespace {

using test::expect_data_error;
using test::little;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

// A file with this header and as many bytes of data.
std::string file_of(const std::string& header, size_t data) {
  return little(header.size(), 8) + header + std::string(data, 'd');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const TempFolder folder;
  write_bytes(folder / "f", bytes);
  expect_data_error([&] { SafetensorsFile file(folder / "f"); }, part);
}

// One tensor that is right but for what the arguments say.
void expect_entry_refused(const std::string& dtype, const std::string& shape,
                          const std::string& offsets, const std::string& part, size_t data = 8) {
  expect_refused(file_of("{" + entry("t", dtype, shape, offsets) + "}", data), part);
}

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  const std::vector<float> kernel{1, 2, 3, 4, 5, 6};
  const std::vector<double> bias{0.5, -0.5};
  const std::vector<uint8_t> bytes{1, 2, 3};
  const int64_t step = 7;
  const std::vector<NamedBytes> tensors{
      {"layer/kernel", {Dtype::float32, {2, 3}}, kernel.data()},
      {"bytes \"q\" \xC3\xA9", {Dtype::uint8, {3}}, bytes.data()},
      {"bias", {Dtype::float64, {2}}, bias.data()},
      {"none", {Dtype::bfloat16, {4, 0}}, nullptr},
      {"step", {Dtype::int64, {}}, &step},
  };
  write_safetensors(folder / "f", tensors, {{"made by", "plimsoll"}, {"empty", ""}});
  const SafetensorsFile file(folder / "f");
  ASSERT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.entries()[0].offset % 8, 0);
  EXPECT_EQ(file.metadata(), (Metadata{{"made by", "plimsoll"}, {"empty", ""}}));
  for (const NamedBytes& tensor : tensors) {
    const auto* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->meta, tensor.meta);
    std::string read(static_cast<size_t>(found->bytes), '\0');
    file.read(tensor.name, read.data(), found->bytes);
    EXPECT_EQ(read, std::string(static_cast<const char*>(tensor.data), read.size()));
  }
  EXPECT_EQ(file.find("layer"), nullptr);
  double wrong = 0;
  expect_data_error([&] { file.read("missing", &wrong, 8); }, "without it");
  expect_data_error([&] { file.read("bias", &wrong, 8); }, "expected 8 bytes");
}

TEST(Safetensors, EmptyFileOfTensorsIsFine) {
  const TempFolder folder;
  write_safetensors(folder / "f", {});
  EXPECT_TRUE(SafetensorsFile(folder / "f").entries().empty());
}

TEST(Safetensors, WriterRefusesNamesThatCollide) {
  const TempFolder folder;
  const uint8_t byte = 0;
  const NamedBytes a{"a", {Dtype::uint8, {1}}, &byte};
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{a, a}), UserError);
  const NamedBytes metadata{"__metadata__", {Dtype::uint8, {1}}, &byte};
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{metadata}), UserError);
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(Safetensors, RefusesEveryTruncationAndExtension) {
  const TempFolder folder;
  const std::vector<float> data{1, 2, 3};
  write_safetensors(folder / "f",
                    std::vector<NamedBytes>{{"a", {Dtype::float32, {3}}, data.data()}},
                    {{"k", "v"}});
  const std::string bytes = read_bytes(folder / "f");
  for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), "");
  expect_refused(bytes + "x", "1 bytes after the last");
}

TEST(Safetensors, RefusesHeaders) {
  expect_refused("", "at least 8 bytes");
  expect_refused(little(UINT64_MAX, 8), "header within the file");
  expect_refused(little(100'000'001, 8) + std::string(1000, ' '), "header within the file");
  expect_refused(little(1000, 8) + "{}", "header within the file");
  expect_refused(little(0, 8), "begins with '{'");
  expect_refused(file_of(" {}", 0), "begins with '{'");
  expect_refused(file_of("[]", 0), "begins with '{'");
  expect_refused(file_of("{", 0), "expected JSON");
  expect_refused(file_of("{} {}", 0), "expected JSON");
  expect_refused(file_of(std::string("{}\0\0", 4), 0), "zero byte");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  expect_refused(file_of(deep, 0), "64 levels");
}

TEST(Safetensors, AcceptsPaddingBehindTheHeader) {
  const TempFolder folder;
  write_bytes(folder / "f", file_of("{" + entry("t", "\"U8\"", "[2]", "[0,2]") + "}    ", 2));
  EXPECT_EQ(SafetensorsFile(folder / "f").entries().size(), 1u);
}

TEST(Safetensors, RefusesEntriesOfTheWrongType) {
  expect_refused(file_of("{\"t\":1}", 0), "expected an object");
  expect_refused(file_of("{\"t\":{}}", 0), "expected dtype, shape and data_offsets");
  expect_refused(file_of(R"({"t":{"dtype":"U8","shape":[1],"offsets":[0,1]}})", 1), "data_offsets");
  expect_refused(file_of(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1),
                 "4 keys");
  expect_entry_refused("1", "[2]", "[0,8]", "expected a string");
  expect_entry_refused("\"F31\"", "[2]", "[0,8]", "tensor 't': expected dtype F32");
  expect_entry_refused("\"f32\"", "[2]", "[0,8]", "received 'f32'");
  expect_entry_refused("\"F32\"", "2", "[0,8]", "expected an array");
  expect_entry_refused("\"F32\"", "[2.0]", "[0,8]", "expected an integer");
  expect_entry_refused("\"F32\"", "[\"2\"]", "[0,8]", "expected an integer");
  expect_entry_refused("\"F32\"", "[true,2]", "[0,8]", "expected an integer");
  expect_entry_refused("\"F32\"", "[2]", "{}", "expected an array");
  expect_entry_refused("\"F32\"", "[2]", "[0,8,9]", "two data_offsets");
  expect_entry_refused("\"F32\"", "[2]", "[0,8.0]", "expected an integer");
}

TEST(Safetensors, RefusesOffsetsAndShapes) {
  expect_entry_refused("\"F32\"", "[2]", "[-8,0]", "data_offsets within");
  expect_entry_refused("\"F32\"", "[2]", "[8,0]", "data_offsets within");
  expect_entry_refused("\"F32\"", "[2]", "[0,9]", "data_offsets within");
  expect_entry_refused("\"F32\"", "[2]", "[0,18446744073709551615]", "64 bits");
  expect_entry_refused("\"F32\"", "[2]", "[9223372036854775800,9223372036854775807]",
                       "data_offsets within");
  expect_entry_refused("\"F32\"", "[3]", "[0,8]", "12 bytes");
  expect_entry_refused("\"F32\"", "[-2]", "[0,8]", "not negative");
  expect_entry_refused("\"F32\"", "[-1,-2]", "[0,8]", "not negative");
  // Products that wrap to 2 in 64 bits.
  expect_entry_refused("\"F32\"", "[4611686018427387904,4,2]", "[0,8]", "below 2^62");
  expect_entry_refused("\"F32\"", "[9223372036854775807,2]", "[0,8]", "below 2^62");
  expect_entry_refused("\"F64\"", "[2305843009213693953]", "[0,8]", "below 2^62");
  std::string ones = "[1";
  for (int i = 0; i < 40; ++i) ones += ",1";
  expect_entry_refused("\"F64\"", ones + "]", "[0,8]", "32 dimensions");
}

TEST(Safetensors, RefusesOverlapsHolesAndDuplicates) {
  const auto two = [](const std::string& a, const std::string& b) {
    return "{" + entry("a", "\"U8\"", "[4]", a) + "," + entry("b", "\"U8\"", "[4]", b) + "}";
  };
  expect_refused(file_of(two("[0,4]", "[2,6]"), 6), "overlap");
  expect_refused(file_of(two("[0,4]", "[0,4]"), 4), "overlap");
  expect_refused(file_of(two("[0,4]", "[5,9]"), 9), "bytes between");
  expect_refused(file_of(two("[1,5]", "[5,9]"), 9), "bytes between");
  expect_refused(file_of(two("[0,4]", "[4,8]"), 9), "after the last");
  expect_refused(file_of("{" + entry("a", "\"U8\"", "[1]", "[0,1]") + "," +
                             entry("a", "\"U8\"", "[1]", "[1,2]") + "}",
                         2),
                 "\"a\" twice");
  expect_refused(file_of("{" + entry("a", "\"U8\"", "[0]", "[1,1]") + "," +
                             entry("b", "\"U8\"", "[2]", "[0,2]") + "}",
                         2),
                 "overlap");
  expect_refused(file_of("{}", 1), "1 bytes after");
  const TempFolder folder;  // the order in the header does not matter
  write_bytes(folder / "f", file_of(two("[4,8]", "[0,4]"), 8));
  EXPECT_EQ(SafetensorsFile(folder / "f").entries()[0].name, "b");
}

TEST(Safetensors, RefusesMetadataThatIsNotText) {
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "expected a string");
  expect_refused(file_of(R"({"__metadata__":[]})", 0), "expected an object");
  expect_refused(file_of(R"({"__metadata__":{"a":{}}})", 0), "expected a string");
}

// A sparse file of a terabyte costs no disk, and must cost no memory.
TEST(Safetensors, SizeOfTheFileIsNotAllocated) {
  const TempFolder folder;
  const std::string header =
      "{" + entry("t", "\"U8\"", "[1099511627776]", "[0,1099511627776]") + "}";
  write_bytes(folder / "f", little(header.size(), 8) + header);
  std::error_code error;
  std::filesystem::resize_file(folder / "f", 8 + header.size() + (uintmax_t{1} << 40), error);
  if (error) GTEST_SKIP() << "no sparse files here";
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.entries()[0].bytes, int64_t{1} << 40);
}

}  // namespace
}  // namespace pl::safetensors_test

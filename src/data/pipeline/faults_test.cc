// Files that are damaged or hostile, functions that throw and disks that are full, each in a whole
// pipeline with threads at work: the error says which, and nothing stays behind.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "data/image/encode_png.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"
#include "tests/disk_faults.h"

namespace pl::faults_test {
namespace {

using test::golden_file;
using test::little;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

int64_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// One that was joined is in the list for a moment more.
bool threads_become(int64_t wanted) {
  for (int i = 0; i < 200 && threads() != wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return threads() == wanted;
}

Dataset busy(const Dataset& data) {
  return data
      .map([](const Element& in) { return in; },
           {.num_parallel_calls = 3, .spec = data.element_spec(), .max_bytes = 64 * kKiB})
      .prefetch(2)
      .with_options({.memory = "16MiB", .threads = 2});
}

// Runs until it fails, several times; the message.
template <class E>
std::string failure(const std::function<Dataset()>& make) {
  std::string message = "no error";
  const int before = open_descriptors();
  const int64_t threads_before = threads();
  for (int i = 0; i < 5; ++i) {
    try {
      const Dataset data = busy(make());
      DatasetIterator iterator = data.iterate();
      for (Element e; iterator.next(e);) {
      }
      return "no error";
    } catch (const E& error) {
      message = error.what();
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_TRUE(threads_become(threads_before));
  }
  return message;
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "expected '" << part << "' in: " << message;
}

TEST(Faults, DamagedImagesAmongGoodOnes) {
  const TempFolder folder;
  std::vector<uint8_t> pixels(40 * 30 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i % 251);
  const std::string good = encode_png(pixels.data(), {40, 30}, 3);
  std::filesystem::create_directories(folder / "a");
  for (int i = 0; i < 20; ++i) write_bytes(folder / ("a/" + std::to_string(i) + ".png"), good);
  const auto images = [&] {
    return image_dataset_from_directory(folder.path(), {.batch_size = 4, .image_size = {8, 8}});
  };
  // A header that promises 100,000 x 100,000 pixels.
  std::string bomb = good;
  bomb.replace(16, 8, test::big(100'000) + test::big(100'000));
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(bomb.data()) + 12, 17);
  bomb.replace(29, 4, test::big(static_cast<uint32_t>(crc)));
  for (const auto& [bytes, part] : std::vector<std::pair<std::string, std::string>>{
           {good.substr(0, good.size() / 2), "a/7.png"},
           {bomb, "pixels, received 100000 x 100000"},
           {read_bytes(golden_file("formats/pillow_RGB.bmp")).substr(0, 100), "ends in the middle"},
           {"\xFF\xD8\xFF\xE0 and no more", "a/7.png"}}) {
    write_bytes(folder / "a/7.png", bytes);
    expect_part(failure<DataError>(images), part);
  }
}

TEST(Faults, DamagedRecords) {
  const TempFolder folder;
  std::string records = read_bytes(golden_file("formats/tf.tfrecord"));
  records[40] = static_cast<char>(records[40] ^ 1);
  const std::string plain = write_bytes(folder / "r.tfrecord", records),
                    packed = write_bytes(folder / "r.tfrecord.gz", test::gzip(records));
  for (const std::string& path : {plain, packed})
    expect_part(failure<DataError>([&] { return tfrecord_dataset({path}, {.max_bytes = 65536}); }),
                "expected a record with its CRC");
  const std::string table = write_bytes(folder / "t.csv", "a,b\n1,2\n3,\"4\n");
  expect_part(failure<DataError>([&] {
                return csv_dataset({table}, {{"a", Dtype::float32, Shape()}});
              }),
              "line 3: expected a quote that closes the field");
  const std::string array =
      write_bytes(folder / "x.npy", test::npy_of("|O", "(3,)", std::string(24, 'x')));
  expect_part(failure<DataError>([&] { return npy_dataset(array); }), "'|O'");
  // A name outside: the header's check sum is right.
  std::string header(512, '\0');
  header.replace(0, 9, "../../etc");
  for (const size_t at : {100, 108, 116, 124, 136}) header.replace(at, 7, "0000000");
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  header[156] = '0';
  header.replace(148, 8, "        ");
  uint32_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof(text), "%06o", sum);
  header.replace(148, 7, std::string(text, 7));
  const std::string shard = write_bytes(folder / "s.tar", header + std::string(1024, '\0'));
  expect_part(failure<DataError>([&] { return tar_dataset({shard}, {"txt"}); }),
              "names within the archive");
}

TEST(Faults, FunctionsThatThrow) {
  const auto generator = [](int64_t until, bool standard) {
    return Dataset::from_generator(
        [until, standard] {
          return [until, standard, i = int64_t{0}]() mutable -> std::optional<Element> {
            if (i == until && standard) throw std::runtime_error("the sensor is off");
            if (i == until) throw 7;
            return Element(1, scalar64(i++));
          };
        },
        int64_spec());
  };
  expect_part(failure<DataError>([&] { return generator(9, true).shuffle(4); }),
              "element 9: the sensor is off");
  expect_part(failure<UserError>([&] { return generator(9, false).cache(); }), "element 9");
  expect_part(failure<DataError>([&] {
                return Dataset::range(50).map(
                    [](const Element& in) -> Element {
                      if (number(in) == 31) throw std::system_error(EIO, std::generic_category());
                      return in;
                    },
                    {.num_parallel_calls = 4});
              }),
              "element 31");
  const auto coroutine = []() -> Generator<Element> {
    co_yield Element(1, scalar64(1));
    throw std::runtime_error("no more");
  };
  expect_part(failure<DataError>([&] { return Dataset::from_generator(coroutine, int64_spec()); }),
              "element 1: no more");
}

int full(const DiskCall& call) {
  static std::atomic<int> writes = 0;
  return call.kind == DiskCall::Kind::write && ++writes % 50 == 0 ? ENOSPC : 0;
}

TEST(Faults, ADiskThatFillsWhileCachingOrWritingASnapshot) {
  const TempFolder folder;
  const test::DiskFaults faults(full);
  const Dataset numbers = Dataset::range(1000).batch(10);
  expect_part(failure<BackendError>([&] { return numbers.cache({.elements = 1}); }),
              "No space left");
  expect_part(failure<BackendError>([&] { return numbers.snapshot(folder.path()); }),
              "No space left");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace pl::faults_test

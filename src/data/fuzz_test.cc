// Deterministic mutations of good files. Whatever comes, a reader either reads or throws DataError.
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "data/bpe.h"
#include "data/cifar.h"
#include "data/csv.h"
#include "data/example.h"
#include "data/idx.h"
#include "data/image/image.h"
#include "data/npz.h"
#include "data/pipeline/element_file.h"
#include "data/safetensors.h"
#include "data/source.h"
#include "data/tar.h"
#include "data/tfrecord.h"
#include "tests/data_files.h"

namespace pl::fuzz_test {
namespace {

using test::big;
using test::golden_file;
using test::little;
using test::read_bytes;
using test::TempCache;
using test::write_bytes;

using Random = std::mt19937_64;

size_t pick(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// One small change: a bit, a byte, a number that programs stumble over, a piece lost or doubled.
std::string mutate(std::string bytes, Random& random) {
  static const uint64_t kNumbers[] = {0,          1,          0x7F,      0x80,
                                      0xFF,       0x7FFF,     0xFFFF,    0x7FFFFFFF,
                                      0x80000000, 0xFFFFFFFF, INT64_MAX, UINT64_MAX};
  static const char* kWords[] = {"9223372036854775807",
                                 "-1",
                                 "18446744073709551616",
                                 "\"",
                                 "{",
                                 "[",
                                 "}",
                                 "]",
                                 ",",
                                 "null",
                                 "1e308",
                                 "0",
                                 "(",
                                 ")",
                                 "'",
                                 "True"};
  if (bytes.empty()) return "x";
  const size_t at = pick(random, bytes.size());
  const size_t length = 1 + pick(random, std::min<size_t>(16, bytes.size() - at));
  switch (random() % 7) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    case 2: {
      const std::string number = little(kNumbers[random() % std::size(kNumbers)], 8);
      const size_t width = size_t{1} << random() % 4;
      bytes.replace(at, std::min(width, bytes.size() - at), number.substr(0, width));
      break;
    }
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, length));
      break;
    case 5:
      bytes.insert(at, kWords[random() % std::size(kWords)]);
      break;
    default:
      bytes.replace(at, length, kWords[random() % std::size(kWords)]);
      break;
  }
  return bytes;
}

// `read` sees `count` mutants; the number that it accepted is returned, so that a test can tell
// whether the mutants reached beyond the first check.
int fuzz(const std::string& good, int count, uint64_t seed,
         const std::function<void(const std::string&)>& read) {
  Random random(seed);
  int accepted = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes = mutate(good, random);
    while (random() % 3 == 0) bytes = mutate(bytes, random);
    try {
      read(bytes);
      ++accepted;
    } catch (const DataError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutant " << i << " of seed " << seed << ": " << error.what();
    }
  }
  return accepted;
}

void read_source(Source& source) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < std::min<int64_t>(source.size(), 4); ++i) indices.push_back(i);
  std::vector<std::string> bytes;
  std::vector<void*> destinations;
  for (const Field& field : source.fields())
    bytes.emplace_back(static_cast<size_t>(field.sample.bytes()) * indices.size(), '\0');
  for (std::string& field : bytes) destinations.push_back(field.data());
  source.read(indices, destinations);
}

// No cache folder: inflated copies go to unlinked files, which nobody syncs.
class Fuzz : public ::testing::Test {
 protected:
  Fuzz() { ::setenv("PLIMSOLL_CACHE", "/dev/null/none", 1); }
  TempCache folder_;
  // A new file each time: ext4 flushes one that is truncated and written again.
  std::string write(const std::string& bytes) {
    std::filesystem::remove(folder_ / "f");
    return write_bytes(folder_ / "f", bytes);
  }
};

TEST_F(Fuzz, Json) {
  const std::string good = R"({"a":[1,-2.5e3,{"b":"x\u00e9\n"}],"c":null,"d":true,"e":""})";
  const int accepted = fuzz(good, 4000, 1, [](const std::string& text) {
    const Json json = parse_json(text, "mutant");
    if (parse_json(json.dump(), "printed") != json) throw std::runtime_error("other when printed");
  });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Safetensors) {
  const std::string good = read_bytes(golden_file("small.safetensors"));
  const auto read = [&](const std::string& bytes) {
    const SafetensorsFile file(write(bytes));
    for (const auto& entry : file.entries()) {
      std::string data(static_cast<size_t>(entry.bytes), '\0');
      file.read(entry, data.data(), entry.bytes);
    }
  };
  fuzz(good, 2000, 2, read);
  // Mutants of the header alone, with the right length in front, get past the first checks.
  const size_t data_at =
      8 + static_cast<unsigned char>(good[0]) + 256 * static_cast<unsigned char>(good[1]);
  const std::string header = good.substr(8, data_at - 8), data = good.substr(data_at);
  const int accepted = fuzz(header, 3000, 3, [&](const std::string& text) {
    read(little(text.size(), 8) + text + data);
  });
  EXPECT_GT(accepted, 10);
}

TEST_F(Fuzz, Npz) {
  for (const char* name : {"stored.npz", "compressed.npz", "tokens.npz"}) {
    const std::string good = read_bytes(golden_file(name));
    fuzz(good, 1500, 4, [&](const std::string& bytes) { read_source(*npz_source(write(bytes))); });
  }
}

// With a valid archive around the mutant, the array's header is what is tested.
TEST_F(Fuzz, Npy) {
  const std::string x = test::npy_of("<f4", "(3, 2)", std::string(24, 'q'));
  const std::string y = test::npy_of("<i8", "(3,)", test::raw<int64_t>({1, 2, 0}));
  int accepted = fuzz(x, 1500, 5, [&](const std::string& bytes) {
    read_source(*npz_source(write(test::zip({{"x.npy", bytes}, {"y.npy", y}}))));
  });
  accepted += fuzz(y, 1500, 6, [&](const std::string& bytes) {
    read_source(*npz_source(write(test::zip({{"x.npy", x}, {"y.npy", bytes}}))));
  });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Idx) {
  const std::string good = std::string("\0\0\x08\2", 4) + big(3) + big(5) + std::string(15, 'q');
  fuzz(good, 1500, 7, [&](const std::string& bytes) { open_idx(write(bytes)); });
  fuzz(test::gzip(good), 1500, 8, [&](const std::string& bytes) { open_idx(write(bytes)); });
  fuzz(good, 1500, 9, [&](const std::string& bytes) { open_idx(write(test::gzip(bytes))); });
}

TEST_F(Fuzz, TfRecord) {
  const auto read = [&](const std::string& bytes) {
    TfRecordReader reader(write(bytes));
    while (const auto length = reader.next()) {
      std::string record(static_cast<size_t>(*length), '\0');
      reader.read(record.data());
    }
  };
  for (const char* name : {"tf.tfrecord", "tf.tfrecord.gz", "tf.tfrecord.zlib"})
    fuzz(read_bytes(golden_file("formats/" + std::string(name))), 1500, 10, read);
  // The messages, without CRCs around them.
  const File file = File::open(golden_file("formats/tf.tfrecord"));
  std::string record(static_cast<size_t>(index_tfrecords(file)[0].bytes), '\0');
  read_tfrecord(file, index_tfrecords(file)[0], record.data());
  const int accepted = fuzz(record, 4000, 11, [](const std::string& bytes) {
    const Example example = parse_example(bytes, "mutant");
    if (parse_example(serialize_example(example), "again").features.size() !=
        example.features.size())
      throw std::runtime_error("other when written");
  });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Csv) {
  const int accepted =
      fuzz(read_bytes(golden_file("formats/excel.csv")), 3000, 12, [&](const std::string& bytes) {
        CsvReader reader(write(bytes));
        std::vector<std::string_view> fields;
        while (reader.next(fields))
          if (fields.size() != reader.width()) throw std::runtime_error("another width");
      });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Tar) {
  for (const char* name : {"ustar.tar", "gnu.tar", "pax.tar"})
    fuzz(read_bytes(golden_file("formats/" + std::string(name))).substr(0, 8192), 1500, 13,
         [&](const std::string& bytes) {
           const File file = File::open(write(bytes));
           for (const TarEntry& entry : index_tar(file)) {
             std::string data(static_cast<size_t>(entry.bytes), '\0');
             file.pread_exact(data.data(), entry.bytes, entry.at);
           }
         });
}

TEST_F(Fuzz, Merges) {
  const int accepted =
      fuzz("#version: 0.2\na b\nab c\n\u0120 t\n", 3000, 14, [&](const std::string& bytes) {
        const auto tokenizer = BpeTokenizer::load(write(bytes));
        const std::string text = "abc the ab\xFF";
        if (tokenizer.decode(tokenizer.encode(text)) != text)
          throw std::runtime_error("other when decoded");
      });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Bitmaps) {
  int accepted = 0;
  for (const char* name : {"pillow_1.bmp", "pillow_RGB.bmp", "pillow_RGBA.bmp"})
    accepted += fuzz(read_bytes(golden_file("formats/" + std::string(name))), 1500, 15,
                     [&](const std::string& bytes) {
                       uint8_t pixels[4 * 4 * 3];
                       decode_image(write(bytes), {.size = {4, 4}}, pixels);
                     });
  EXPECT_GT(accepted, 100);
}

TEST_F(Fuzz, Cifar) {
  fuzz(std::string(3 * 3073, '\7'), 300, 16, [&](const std::string& bytes) {
    read_source(*cifar_source({write(bytes)}, CifarKind::cifar10));
  });
}

TEST_F(Fuzz, Snapshots) {
  const ElementSpec spec{{{"x", Dtype::int64, Shape{kUnknown, 2}}, {"y", Dtype::uint8, Shape()}}};
  {
    ElementFileWriter writer(spec, folder_.path(), "snapshot");
    for (const int64_t i : {2, 0, 1}) {
      Tensor x(Meta{Dtype::int64, Shape{i, 2}}), y(Meta{Dtype::uint8, Shape()});
      std::fill_n(x.data_as<int64_t>(), 2 * i, i);
      *y.data_as<uint8_t>() = 3;
      writer.put(i, {x, y});
    }
    writer.publish(folder_ / "whole", 7);
  }
  const std::string good = read_bytes(folder_ / "whole");
  const int accepted = fuzz(good, 4000, 17, [&](const std::string& bytes) {
    const auto file = ElementFile::open(write(bytes), spec, 7);
    for (int64_t i = 0; i < file->count(); ++i)
      if (file->read(i)[0].shape()[0] != i) throw std::runtime_error("damage that was not seen");
  });
  EXPECT_LT(accepted, 100);  // those that changed nothing, or bytes nobody reads
}

}  // namespace
}  // namespace pl::fuzz_test

#include "train/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/crc32c.h"
#include "tests/data_files.h"

namespace pl::event_file_test {
namespace {

using test::read_bytes;
using test::TempFolder;

// The messages of a file, each frame's two checksums checked.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> list;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint64_t length = 0;
    uint32_t head = 0, tail = 0;
    std::memcpy(&length, &bytes[at], 8);
    std::memcpy(&head, &bytes[at + 8], 4);
    EXPECT_EQ(head, masked_crc32c(bytes.substr(at, 8)));
    list.push_back(bytes.substr(at + 12, length));
    std::memcpy(&tail, &bytes[at + 12 + length], 4);
    EXPECT_EQ(tail, masked_crc32c(list.back()));
    at += 16 + length;
  }
  return list;
}

TEST(EventFile, ChecksumIsCastagnoliMasked) {
  // crc32c("123456789") is 0xE3069283 (RFC 3720's check value).
  const uint32_t crc = 0xE3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

TEST(EventFile, AScalarAsTensorBoardHasIt) {
  const TempFolder folder;
  EventFile file;
  file.create(folder / "train");
  file.scalar("epoch_loss", 0.5, 3);
  EXPECT_TRUE(file.name().starts_with("events.out.tfevents."));
  const auto list = records(read_bytes(folder / "train" + "/" + file.name()));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  // step 3; summary { value { tag, metadata { plugin scalars }, tensor { DT_FLOAT, (), 0.5 } } }
  EXPECT_EQ(list[1].substr(9), std::string("\x10\x03\x2a\x27\x0a\x25\x0a\x0a"
                                           "epoch_loss"
                                           "\x4a\x0b\x0a\x09\x0a\x07"
                                           "scalars"
                                           "\x42\x0a\x08\x01\x12\x00\x2a\x04\x00\x00\x00\x3f",
                                           43));
}

TEST(EventFile, GoesOnWhereTheCheckpointWas) {
  const TempFolder folder;
  EventFile file;
  file.create(folder / "t");
  file.scalar("a", 1, 1);
  const Bytes bytes = file.size();
  file.scalar("b", 2, 2);
  const std::string name = file.name();
  file.close();
  EventFile again;
  again.go_on(folder / "t", name, bytes);
  again.scalar("c", 3, 3);
  const auto list = records(read_bytes(folder / "t" + "/" + name));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_NE(list[2].find("c"), std::string::npos);
  EventFile other;  // one that is gone, or lies elsewhere, is made anew
  other.go_on(folder / "t", "../t/" + name, bytes);
  EXPECT_NE(other.name(), name);
}

}  // namespace
}  // namespace pl::event_file_test

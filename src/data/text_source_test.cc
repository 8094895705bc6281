#include <gtest/gtest.h>

#include "base/error.h"
#include "data/source.h"
#include "tests/data_files.h"

namespace pl::text_source_test {
namespace {

using test::TempFolder;
using test::write_bytes;

struct Window {
  std::vector<int32_t> x, y;
};

Window read(Source& source, int64_t index) {
  const auto length = static_cast<size_t>(source.fields()[0].sample.elements());
  Window window{std::vector<int32_t>(length), std::vector<int32_t>(length)};
  void* places[] = {window.x.data(), window.y.data()};
  source.read({&index, 1}, places);
  return window;
}

std::string message(const std::string& path, int64_t length, int64_t vocabulary) {
  try {
    text_sources(path, length, vocabulary);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(TextSource, WindowsOverlapByOneCharacterAndCoverTheFile) {
  const TempFolder folder;
  std::string text = "bcabcabcabcabcabcabcabcabcabca";  // 30 characters: 27 and 3
  write_bytes(folder / "t.txt", text);
  EXPECT_EQ(text_characters(folder / "t.txt"), "abc");
  const Sources sources = text_sources(folder / "t.txt", 2, 3);
  ASSERT_EQ(sources.train->size(), 13);
  ASSERT_TRUE(sources.test);
  ASSERT_EQ(sources.test->size(), 1);
  for (int64_t i = 0; i < 13; ++i) {
    const Window window = read(*sources.train, i);
    for (size_t t = 0; t < 2; ++t) {
      EXPECT_EQ(window.x[t], text[static_cast<size_t>(2 * i) + t] - 'a');
      EXPECT_EQ(window.y[t], text[static_cast<size_t>(2 * i) + t + 1] - 'a');
    }
  }
  EXPECT_EQ(read(*sources.test, 0).x[0], text[27] - 'a');
  EXPECT_EQ(sources.train->fields()[0].range->high, 2);
  EXPECT_LE(sources.train->resident_bytes(), 8 * kKiB);
}

TEST(TextSource, LongWindowsAreReadInPieces) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 30000; ++i) text += static_cast<char>(i * i % 251);
  write_bytes(folder / "t.txt", text);
  const std::string characters = text_characters(folder / "t.txt");
  const Sources sources = text_sources(folder / "t.txt", 9000, 256);
  ASSERT_EQ(sources.train->size(), 2);
  EXPECT_FALSE(sources.test) << "3,000 characters hold no window of 9,000";
  const Window window = read(*sources.train, 1);
  for (size_t t = 0; t < 9000; ++t) {
    ASSERT_EQ(characters[static_cast<size_t>(window.x[t])], text[9000 + t]) << t;
    ASSERT_EQ(characters[static_cast<size_t>(window.y[t])], text[9001 + t]) << t;
  }
}

TEST(TextSource, RefusesFilesThatDoNotServe) {
  const TempFolder folder;
  write_bytes(folder / "empty.txt", "");
  write_bytes(folder / "ten.txt", "0123456789");
  EXPECT_NE(message(folder / "empty.txt", 1, 10).find("received a file of 0"), std::string::npos);
  EXPECT_NE(message(folder / "ten.txt", 9, 10).find("at least 10 characters"), std::string::npos);
  EXPECT_EQ(message(folder / "ten.txt", 8, 10), "");
  EXPECT_NE(message(folder / "ten.txt", 8, 9).find("at most 9 different"), std::string::npos);
  EXPECT_NE(message(folder / "none.txt", 8, 9).find("none.txt"), std::string::npos);
  EXPECT_NE(message(folder / "", 8, 9), "") << "a folder is no text";
}

TEST(TextSource, NoticesThatTheFileChanged) {
  const TempFolder folder;
  write_bytes(folder / "t.txt", std::string(100, 'a'));
  const Sources sources = text_sources(folder / "t.txt", 8, 4);
  write_bytes(folder / "t.txt", std::string(100, 'z'));
  EXPECT_THROW(read(*sources.train, 0), DataError);
  write_bytes(folder / "t.txt", "a");
  EXPECT_THROW(read(*sources.train, 3), DataError);
}

}  // namespace
}  // namespace pl::text_source_test

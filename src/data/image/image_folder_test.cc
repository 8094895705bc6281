// Folders of images: which files are listed, how they are split and read, and damaged ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/image/encode_png.h"
#include "data/image/image.h"
#include "tests/data_files.h"
#include "tests/image_files.h"
#include "tests/messages.h"

namespace pl::image_folder_test {
namespace {

namespace fs = std::filesystem;
using test::gradient;
using test::jpeg;
using test::Pixels;
using test::TempFolder;
using test::write_bytes;

std::string png(const Pixels& pixels, int64_t height, int64_t width) {
  return encode_png(pixels.data(), {height, width}, 3);
}

TEST(ImageFolder, ClassesAreSortedFolders) {
  const TempFolder folder;
  for (const char* name : {"dog", "ant", "cat"}) fs::create_directory(folder / name);
  for (const char* name : {"dog/b.jpg", "dog/a.JPG", "cat/z.jpeg", "ant/q.png"})
    write_bytes(folder / name, png(gradient(6, 6), 6, 6));
  write_bytes(folder / "dog/notes.txt", "no image");
  const ImageList list = list_images(folder.path());
  EXPECT_EQ(list.classes, (std::vector<std::string>{"ant", "cat", "dog"}));
  ASSERT_EQ(list.size(), 4);
  EXPECT_EQ(list.path(0), folder / "ant/q.png");
  EXPECT_EQ(list.path(3), folder / "dog/b.jpg");
  EXPECT_EQ(list.labels, (std::vector<int32_t>{0, 1, 2, 2}));
  EXPECT_THROW(list_images(folder / "nowhere"), DataError);
  fs::create_directory(folder / "none");
  EXPECT_THROW(list_images(folder / "none"), DataError);
}

TEST(ImageFolder, FilesBelowClassesCountAndOthersAreNamed) {
  const TempFolder folder;
  for (const char* name : {"ant/more/less", "bee"}) fs::create_directories(folder / name);
  const std::string image = png(gradient(6, 6), 6, 6);
  for (const char* name : {"ant/z.png", "ant/more/a.png", "ant/more/less/b.png", "bee/c.png"})
    write_bytes(folder / name, image);
  for (const char* name : {"readme.md", "bee/photo", "ant/more/d.webp", "bee/.hidden"})
    write_bytes(folder / name, image);
  fs::create_directory_symlink(folder.path(), folder / "bee/loop");
  const ImageList list = list_images(folder.path());
  ASSERT_EQ(list.size(), 4);
  EXPECT_EQ(list.labels, (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(list.path(0), folder / "ant/z.png");
  EXPECT_EQ(list.path(2), folder / "ant/more/less/b.png");
  EXPECT_EQ(list.passed_over, 4);
  EXPECT_EQ(list.text(), folder.path() +
                             ": 4 images of 2 classes; passed over 4 files: readme.md, " +
                             "ant/more/d.webp, bee/photo, bee/loop");
  EXPECT_NE(image_header(list.path(2)).size.height, 0);
}

TEST(ImageFolder, IsSplitInTwo) {
  const TempFolder folder;
  for (const char* name : {"a", "b"}) fs::create_directory(folder / name);
  for (int i = 0; i < 10; ++i)
    write_bytes(folder / (std::string(i % 2 ? "a/" : "b/") + std::to_string(i) + ".png"),
                png(Pixels(12, static_cast<uint8_t>(20 * i)), 2, 2));
  const auto values = [&](const char* subset, uint64_t epoch) {
    DatasetIterator iterator = image_dataset_from_directory(folder.path(), {.batch_size = 0,
                                                                            .image_size = {2, 2},
                                                                            .seed = 5,
                                                                            .validation_split = 0.3,
                                                                            .subset = subset})
                                   .iterate(epoch);
    std::vector<int> list;
    for (Element e; iterator.next(e);) list.push_back(*e[0].data_as<uint8_t>());
    return list;
  };
  std::vector<int> train = values("training", 0), rest = values("validation", 0);
  EXPECT_EQ(train.size(), 7u);
  EXPECT_EQ(rest.size(), 3u);
  EXPECT_NE(values("training", 1), train);
  std::vector<int> later = values("training", 1);
  std::sort(later.begin(), later.end());
  std::sort(train.begin(), train.end());
  EXPECT_EQ(later, train);
  train.insert(train.end(), rest.begin(), rest.end());
  std::sort(train.begin(), train.end());
  EXPECT_EQ(train, (std::vector<int>{0, 20, 40, 60, 80, 100, 120, 140, 160, 180}));
  EXPECT_THROW(image_dataset_from_directory(folder.path(), {.validation_split = 0.3}), UserError);
  EXPECT_THROW(image_dataset_from_directory(folder.path(), {.subset = "training"}), UserError);
}

TEST(ImageFolder, DamagedOnesGiveTheirPlaceToTheNext) {
  const TempFolder folder;
  fs::create_directory(folder / "a");
  for (int i = 0; i < 6; ++i) {
    std::string bytes = jpeg(gradient(40 + i, 50), 40 + i, 50);
    if (i == 1) bytes = "no header";
    if (i == 3) {  // a header that is whole
      bytes = png(gradient(40, 50), 40, 50);
      bytes.resize(bytes.size() / 2);
    }
    write_bytes(folder / ("a/" + std::to_string(i) + ".jpg"), bytes);
  }
  EXPECT_THROW(image_sources(folder.path(), {8, 8}, 2), DataError);
  ::testing::internal::CaptureStderr();
  {
    const Sources sources = image_sources(folder.path(), {8, 8}, 2, OnError::skip);
    ASSERT_EQ(sources.train->size(), 5);
    Pixels x(5 * 8 * 8 * 3);
    std::vector<int32_t> y(5);
    const std::vector<void*> places{x.data(), y.data()};
    for (int epoch = 0; epoch < 2; ++epoch)
      sources.train->read(std::vector<int64_t>{0, 1, 2, 3, 4}, places);
    // The third of those that have a header is 3.jpg, whose place 4.jpg takes.
    EXPECT_TRUE(std::equal(x.begin() + 2 * 192, x.begin() + 3 * 192, x.begin() + 3 * 192));
    EXPECT_FALSE(std::equal(x.begin() + 1 * 192, x.begin() + 2 * 192, x.begin() + 2 * 192));
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* part : {"a/1.jpg", "a/3.jpg", "skipped 1 files in all, 5 images are left"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  EXPECT_EQ(said.find("3.jpg"), said.rfind("3.jpg")) << "once";
}

TEST(ImageFolder, IsASourceThatReadsInAnyOrderOnAnyThreads) {
  const TempFolder folder;
  for (const char* name : {"train", "train/a", "train/b", "test", "test/a", "test/b"})
    fs::create_directory(folder / name);
  for (int i = 0; i < 9; ++i)
    write_bytes(folder / ("train/" + std::string(i % 2 ? "a/" : "b/") + std::to_string(i) + ".jpg"),
                jpeg(gradient(30 + i, 40 + 2 * i), 30 + i, 40 + 2 * i));
  for (const char* name : {"test/a/0.png", "test/b/0.png"})
    write_bytes(folder / name, png(gradient(20, 20), 20, 20));
  EXPECT_TRUE(is_image_folder(folder.path()));
  const int64_t bytes = 12 * 16 * 3;
  const std::vector<int64_t> order{8, 0, 3, 3, 5, 1, 7};
  std::vector<Pixels> results;
  for (const int threads : {1, 4}) {
    const Sources sources = image_sources(folder.path(), {12, 16}, threads);
    EXPECT_EQ(sources.train->size(), 9);
    EXPECT_EQ(sources.test->size(), 2);
    EXPECT_EQ(sources.train->fields()[1].range->high, 1);
    Pixels x(static_cast<size_t>(7 * bytes));
    std::vector<int32_t> y(7);
    const std::vector<void*> places{x.data(), y.data()};
    sources.train->read(order, places);
    EXPECT_EQ(y, (std::vector<int32_t>{1, 0, 0, 0, 1, 0, 1}));
    results.push_back(x);
  }
  EXPECT_EQ(results[0], results[1]);
  Pixels first(static_cast<size_t>(bytes));
  decode_image(list_images(folder / "train").path(8), {.size = {12, 16}}, first.data());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), results[0].begin()));
  // Half of a file shows when it is read, a broken header before.
  const std::string last = list_images(folder / "train").path(3);
  const Sources sources = image_sources(folder.path(), {12, 16}, 3);
  write_bytes(last, "broken");
  Pixels x(static_cast<size_t>(7 * bytes));
  const std::vector<void*> places{x.data(), nullptr};
  EXPECT_NE(test::message_of([&] { sources.train->read(order, places); }).find("7.jpg"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              image_sources(folder.path(), {12, 16}, 3);
            }).find("7.jpg"),
            std::string::npos);
}

TEST(ImageFolder, OneDamagedFileStopsOrIsSkippedAndNamed) {
  const TempFolder folder;
  fs::create_directory(folder / "a");
  for (int i = 0; i < 30; ++i) {
    std::string bytes = jpeg(gradient(40 + i, 50), 40 + i, 50);
    if (i == 17) bytes.resize(bytes.size() / 2);
    write_bytes(folder / ("a/" + std::to_string(100 + i) + ".jpg"), bytes);
  }
  const ImageDatasetOptions options{.batch_size = 4, .image_size = {24, 24}, .shuffle = false};
  const Dataset stops = image_dataset_from_directory(folder.path(), options)
                            .with_options({.memory = "40MiB", .threads = 3});
  DatasetIterator iterator = stops.iterate();
  const std::string message = test::message_of([&] {
    for (Element batch; iterator.next(batch);) {
    }
  });
  EXPECT_NE(message.find("a/117.jpg: the file ends in the middle"), std::string::npos) << message;

  ImageDatasetOptions skipping = options;
  skipping.ignore_errors = true;
  DatasetIterator going = image_dataset_from_directory(folder.path(), skipping)
                              .with_options({.memory = "40MiB", .threads = 3})
                              .iterate();
  int64_t rows = 0;
  for (Element batch; going.next(batch);) rows += batch[0].shape()[0];
  EXPECT_EQ(rows, 29);
  const PipelineReport report = going.report();
  const auto line = std::find_if(report.stages.begin(), report.stages.end(),
                                 [](const StageReport& s) { return s.name == "ignore_errors"; });
  ASSERT_NE(line, report.stages.end());
  EXPECT_EQ(line->skipped, 1);
  EXPECT_NE(line->messages.at(0).find("117.jpg"), std::string::npos);
  EXPECT_LE(report.ledger.payload_peak, 40 * kMiB);
}

}  // namespace
}  // namespace pl::image_folder_test

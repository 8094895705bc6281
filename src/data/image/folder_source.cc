// Folders of images as the samples of a training run.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "data/image/header_scan.h"
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"

namespace pl {
namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

constexpr size_t kNamed = 16;

std::unique_ptr<Source> folder_source(const std::string& folder, ImageSize size, int threads,
                                      OnError on_error) {
  auto list = std::make_shared<ImageList>(list_images(folder));
  if (list->passed_over > 0) std::fprintf(stderr, "plimsoll: %s\n", list->text().c_str());
  std::vector<int64_t> broken;
  const auto damaged = [&](int64_t i, const DataError& error) {
    if (on_error == OnError::stop) throw DataError(error);
    broken.push_back(i);
    if (broken.size() <= kNamed) std::fprintf(stderr, "plimsoll: skipped: %s\n", error.what());
  };
  const Bytes scratch = scan_headers(
      list->size(), [&](int64_t i) { return decode_scratch(list->path(i), size); },
      [&](int64_t i) { return list->path(i); }, damaged);
  if (!broken.empty()) {
    list->drop(broken);
    std::fprintf(stderr, "plimsoll: %s: skipped %zu files in all, %lld images are left\n",
                 folder.c_str(), broken.size(), static_cast<long long>(list->size()));
    if (list->size() == 0)
      throw DataError("[image] " + folder + ": expected an image that is whole, received none");
  }
  const auto classes = static_cast<int64_t>(list->classes.size());
  const Dataset images = image_dataset(
      list, {.batch_size = 0, .image_size = size, .shuffle = false, .scratch = scratch});
  return indexed_source(images, {.threads = threads,
                                 .name = folder,
                                 .ranges = {{}, ValueRange{0, classes - 1}},
                                 .skip_errors = on_error == OnError::skip});
}

}  // namespace

Bytes most_scratch(const ImageList& list, ImageSize size) {
  if (list.size() > kScanned) return 0;
  return scan_headers(
      list.size(), [&](int64_t i) { return decode_scratch(list.path(i), size); },
      [&](int64_t i) { return list.path(i); }, [](int64_t, const DataError&) {});
}

bool is_image_folder(const std::string& path) {
  if (!is_folder(path)) return false;
  for (const char* name : {"/train-images-idx3-ubyte", "/train-images-idx3-ubyte.gz",
                           "/data_batch_1.bin", "/train.bin"})
    if (is_file(path + name)) return false;
  // Folders are classes; of files the first ones tell.
  int left = 16;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.is_directory(error)) return true;
    if (left-- == 0) break;
    try {
      image_header(entry.path().string());
      return true;
    } catch (const DataError&) {
    }
  }
  return false;
}

std::string train_folder(const std::string& folder) {
  return is_folder(folder + "/train") ? folder + "/train" : folder;
}

Sources image_sources(const std::string& folder, ImageSize size, int threads, OnError on_error) {
  Sources sources;
  sources.train = folder_source(train_folder(folder), size, threads, on_error);
  if (!is_folder(folder + "/train")) return sources;
  for (const char* name : {"/test", "/val", "/validation"})
    if (!sources.test && is_folder(folder + name)) {
      if (list_images(folder + name).classes != list_images(folder + "/train").classes)
        throw DataError("[image] " + folder + name + ": expected the classes of " + folder +
                        "/train, received others; give both the same folders");
      sources.test = folder_source(folder + name, size, threads, on_error);
    }
  return sources;
}

}  // namespace pl

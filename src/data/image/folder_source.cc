// Folders of images as the samples of a training run.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
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

// The most that decoding one takes, from all headers, so that the bill is what is used and damage
// shows before the first step. Above so many files it would take seconds, and a bound serves.
constexpr int64_t kScanned = 20'000;
constexpr Bytes kBound = 4 * kMiB;

std::unique_ptr<Source> folder_source(const std::string& folder, ImageSize size, int threads) {
  const ImageList list = list_images(folder);
  Bytes scratch = list.size() > kScanned ? kBound : 0;
  for (int64_t i = 0; i < list.size() && list.size() <= kScanned; ++i)
    scratch = std::max(scratch, decode_scratch(list.path(i), size));
  const Dataset images = image_dataset_from_directory(
      folder, {.batch_size = 0, .image_size = size, .shuffle = false, .scratch = scratch});
  const auto classes = static_cast<int64_t>(list.classes.size());
  return indexed_source(images, threads, ValueRange{0, classes - 1});
}

}  // namespace

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

Sources image_sources(const std::string& folder, ImageSize size, int threads) {
  Sources sources;
  if (!is_folder(folder + "/train")) {
    sources.train = folder_source(folder, size, threads);
    return sources;
  }
  sources.train = folder_source(folder + "/train", size, threads);
  for (const char* name : {"/test", "/val", "/validation"})
    if (!sources.test && is_folder(folder + name)) {
      if (list_images(folder + name).classes != list_images(folder + "/train").classes)
        throw DataError("[image] " + folder + name + ": expected the classes of " + folder +
                        "/train, received others");
      sources.test = folder_source(folder + name, size, threads);
    }
  return sources;
}

}  // namespace pl

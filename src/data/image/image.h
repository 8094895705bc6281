// Images from files: JPEG, PNG and BMP, told apart by their first bytes, decoded row by row into
// the size that is wanted. Files are hostile: sizes are checked before anything is allocated, and
// what is wrong is a DataError with the file's name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/image/augment.h"
#include "data/image/resize.h"
#include "data/pipeline/dataset.h"
#include "data/source.h"

namespace pl {

struct DecodeOptions {
  ImageSize size;         // of the result
  bool antialias = true;  // of the resize
  // Which part of an image of that size is brought to `size`; none: all of it. Of JPEGs little more
  // than the part is decoded.
  std::function<ImageRegion(ImageSize)> region = {};
  // What decoding may hold besides the result. Plain images need some rows; progressive JPEGs and
  // interlaced PNGs all of their pixels.
  Bytes scratch = 4 * kMiB;
};

enum class ImageKind : uint8_t { jpeg, png, bmp };
struct ImageHeader {
  ImageKind kind;
  ImageSize size;
};

// Of a file; throws DataError.
ImageHeader image_header(const std::string& path);
// What decoding it to that size takes besides the result, from its header.
Bytes decode_scratch(const std::string& path, ImageSize size);
// `to`: (size.height, size.width, 3) uint8, RGB; grey images are widened, alpha is dropped.
void decode_image(const std::string& path, const DecodeOptions& options, uint8_t* to);
// The same of a file's bytes in memory, uint8 (n,); the name is for messages.
void decode_image(const std::string& name, const Tensor& bytes, const DecodeOptions& options,
                  uint8_t* to);

// With a region that depends on that number, as map_random gives it. The resize is bilinear.
DecodeOptions with_random_crop(DecodeOptions decode, const ResizedCropOptions& crop,
                               uint64_t number);

// ---- folders

// Files and the number of their class. A million paths of 40 bytes take 52 MB, which is no part of
// an iterator's budget.
struct ImageList {
  std::vector<std::string> classes;  // sorted
  std::string folder, names;         // all names behind each other
  std::vector<int64_t> ends;         // of each name
  std::vector<int32_t> labels;
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  std::string path(int64_t i) const;
  Bytes bytes() const { return static_cast<Bytes>(names.capacity()) + 12 * size(); }
};
// Folders are the classes; without any, the files themselves, all of class 0. Sorted by name.
// Throws DataError when there is no image.
ImageList list_images(const std::string& folder);

// Keras's words, and its defaults but for uint8 pixels, which stay so until a model reads them.
struct ImageDatasetOptions {
  int64_t batch_size = 32;  // 0: single images
  ImageSize image_size = {256, 256};
  bool shuffle = true;
  std::optional<uint64_t> seed = {};
  bool antialias = true;
  int64_t num_parallel_calls = AUTOTUNE;
  Bytes scratch = 4 * kMiB;    // see DecodeOptions
  bool ignore_errors = false;  // leave out files that are no images, and count them
  // Inception's crops, another one in each epoch; of each image little more than that is decoded.
  std::optional<ResizedCropOptions> random_crop = {};
};
// x: uint8 (B, H, W, 3), y: int32 (B,).
Dataset image_dataset_from_directory(const std::string& folder,
                                     const ImageDatasetOptions& options = {});

// For training runs: a folder of classes, or one with folders train and test (or val) that hold
// them. Images are decoded when a batch is read, on so many threads.
bool is_image_folder(const std::string& path);  // rather than one of IDX or CIFAR files
Sources image_sources(const std::string& folder, ImageSize size, int threads);

}  // namespace pl

// Images from files: JPEG, PNG and BMP, told apart by their first bytes, decoded row by row into
// the size that is wanted. Files are hostile: sizes are checked before anything is allocated, and
// what is wrong is a DataError with the file's name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/image/augment.h"
#include "data/image/resize.h"
#include "data/on_error.h"
#include "data/pipeline/dataset.h"
#include "data/source.h"

namespace pl {

inline constexpr Bytes kDecodeScratch = 4 * kMiB;

struct DecodeOptions {
  ImageSize size;         // of the result
  bool antialias = true;  // of the resize
  // Which part of an image of that size is brought to `size`; none: all of it. Of JPEGs little more
  // than the part is decoded.
  std::function<ImageRegion(ImageSize)> region = {};
  // What decoding may hold besides the result. Plain images need some rows; progressive JPEGs and
  // interlaced PNGs all of their pixels.
  Bytes scratch = kDecodeScratch;
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
// The same of a part of a file, such as one in an archive; the name is for messages.
struct FilePart {
  const File& file;
  ByteOffset at = 0;
  Bytes bytes = 0;
  std::string name;
};
Bytes decode_scratch(const FilePart& part, ImageSize size);
void decode_image(const FilePart& part, const DecodeOptions& options, uint8_t* to);
// The same of a file's bytes in memory, uint8 (n,).
void decode_image(const std::string& name, const Tensor& bytes, const DecodeOptions& options,
                  uint8_t* to);

// All of an image at its own size, uint8 (height, width, 3), for functions of maps. `most`: of its
// pixels; what is above is DataError.
Tensor read_image(const std::string& path, Bytes most = 64 * kMiB);
Tensor read_image(const Tensor& bytes, const std::string& name = "an image",
                  Bytes most = 64 * kMiB);

// With a region that depends on that number, as map_random gives it. The resize is bilinear.
DecodeOptions with_random_crop(DecodeOptions decode, const ResizedCropOptions& crop,
                               uint64_t number);

// What decides the pixels of a decoded image, but for its size and a region that is a function.
std::string decode_key(const DecodeOptions& decode, const std::optional<ResizedCropOptions>& crop);
// Throws UserError unless it is 1 to 16384 pixels a side.
void expect_image_size(const std::string& stage, ImageSize size);

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
  // Files without the name of an image, or beside the classes, and folders that are links.
  int64_t passed_over = 0;
  std::vector<std::string> passed_names;  // the first of them
  std::string text() const;  // "photos: 2000 images of 10 classes; passed over 1 file: notes.txt"
  void drop(const std::vector<int64_t>& places);  // ascending
};
// Folders are the classes, with all that is below them; without any, the files themselves, all of
// class 0. Sorted by name. Throws DataError when there is no image.
ImageList list_images(const std::string& folder);

// Keras's words, and its defaults but for uint8 pixels, which stay so until a model reads them.
struct ImageDatasetOptions {
  int64_t batch_size = 32;  // 0: single images
  ImageSize image_size = {256, 256};
  bool shuffle = true;
  std::optional<uint64_t> seed = {};
  // A part of the files, such as 0.2, set aside by the seed: `subset` is "training", the others, or
  // "validation", the part. Both with the same seed have all files once.
  double validation_split = 0;
  std::string subset = {};
  bool antialias = true;
  int64_t num_parallel_calls = AUTOTUNE;
  // See DecodeOptions. 0: 4 MiB, or a 32nd of the pipeline's memory where that is more.
  Bytes scratch = 0;
  bool ignore_errors = false;  // leave out files that are no images, and count them
  // Inception's crops, another one in each epoch; of each image little more than that is decoded.
  std::optional<ResizedCropOptions> random_crop = {};
};
// x: uint8 (B, H, W, 3), y: int32 (B,).
Dataset image_dataset_from_directory(const std::string& folder,
                                     const ImageDatasetOptions& options = {});
// Of a list that was looked at before.
Dataset image_dataset(std::shared_ptr<const ImageList> list,
                      const ImageDatasetOptions& options = {});

struct TarImageOptions {
  ImageSize image_size = {256, 256};
  bool antialias = true;
  int64_t num_parallel_calls = AUTOTUNE;
  Bytes scratch = 0;  // see ImageDatasetOptions
};
// WebDataset's shards: of each sample the image (.jpg, .jpeg, .png, .bmp) and its class (.cls, a
// number): x uint8 (H, W, 3), y int32 (). In any order.
Dataset tar_image_dataset(const std::vector<std::string>& files,
                          const TarImageOptions& options = {});

// For training runs: a folder of classes, or one with folders train and test (or val) that hold
// them. Images are decoded when a batch is read, on so many threads.
bool is_image_folder(const std::string& path);  // rather than one of IDX or CIFAR files
// `skip`: files whose header is none are left out; of others that turn out to be damaged the next
// good image takes the place. Either is named on stderr, and counted.
Sources image_sources(const std::string& folder, ImageSize size, int threads,
                      OnError on_error = OnError::stop);
std::unique_ptr<Source> tar_image_source(const std::vector<std::string>& files, ImageSize size,
                                         int threads, OnError on_error = OnError::stop);
// The folder that holds the classes to learn from: itself, or `train` in it.
std::string train_folder(const std::string& folder);

}  // namespace pl

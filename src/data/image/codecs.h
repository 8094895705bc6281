// The decoders. Internal to image.cc.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "base/file.h"
#include "data/image/image.h"

namespace pl {

inline constexpr int64_t kMostPixels = 400'000'000;

// A file, a part of one, or bytes in memory with a name.
class ImageInput {
 public:
  explicit ImageInput(const File& file) : ImageInput({file, 0, file.size(), file.path()}) {}
  explicit ImageInput(FilePart part)
      : name_(std::move(part.name)), file_(&part.file), begin_(part.at), size_(part.bytes) {}
  ImageInput(std::string name, const uint8_t* data, Bytes size)
      : name_(std::move(name)), data_(data), size_(size) {}
  const std::string& path() const { return name_; }
  Bytes size() const { return size_; }
  Bytes read_some(void* to, Bytes bytes, ByteOffset at) const {
    bytes = std::clamp<Bytes>(size_ - at, 0, bytes);
    if (file_) return bytes > 0 ? file_->read_some(to, bytes, begin_ + at) : 0;
    if (bytes > 0) std::memcpy(to, data_ + at, static_cast<size_t>(bytes));
    return bytes;
  }

 private:
  std::string name_;
  const File* file_ = nullptr;
  const uint8_t* data_ = nullptr;
  ByteOffset begin_ = 0;  // in the file
  Bytes size_ = 0;
};

ImageSize jpeg_size(const ImageInput& file);
// What decoding to that size takes besides the result.
Bytes jpeg_scratch(const ImageInput& file, ImageSize size);
void decode_jpeg(const ImageInput& file, const DecodeOptions& options, uint8_t* to);
ImageSize png_size(const ImageInput& file);
Bytes png_scratch(const ImageInput& file, ImageSize size);
void decode_png(const ImageInput& file, const DecodeOptions& options, uint8_t* to);
ImageSize bmp_size(const ImageInput& file);
Bytes bmp_scratch(const ImageInput& file, ImageSize size);
void decode_bmp(const ImageInput& file, const DecodeOptions& options, uint8_t* to);

// The part of an image that is wanted. Throws DataError unless it lies in it.
ImageRegion region_of(const ImageInput& file, ImageSize image, const DecodeOptions& options);
// Throws DataError with the file's name.
[[noreturn]] void refuse_image(const ImageInput& file, const std::string& what);
// Before anything is allocated.
void check_scratch(const ImageInput& file, Bytes needed, const DecodeOptions& options);
void check_pixels(const ImageInput& file, int64_t height, int64_t width);

}  // namespace pl

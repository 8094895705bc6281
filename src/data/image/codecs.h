// The decoders. Internal to image.cc.
#pragma once

#include <functional>
#include <optional>

#include "base/file.h"
#include "data/image/image.h"

namespace pl {

inline constexpr int64_t kMostPixels = 400'000'000;

ImageSize jpeg_size(const File& file);
void decode_jpeg(const File& file, const DecodeOptions& options, uint8_t* to);
ImageSize png_size(const File& file);
void decode_png(const File& file, const DecodeOptions& options, uint8_t* to);

// Throws DataError with the file's name.
[[noreturn]] void refuse_image(const File& file, const std::string& what);
// Before anything is allocated.
void check_scratch(const File& file, Bytes needed, const DecodeOptions& options);
void check_pixels(const File& file, int64_t height, int64_t width);

}  // namespace pl

// An image as the bytes of a PNG file, for pages and logs.
#pragma once

#include <string>

#include "data/image/resize.h"

namespace pl {

// `pixels`: (height, width, channels) uint8, grey (1) or RGB (3). The same bytes for the same
// image.
std::string encode_png(const uint8_t* pixels, ImageSize size, int channels);

// Bytes as RFC 4648's characters, for data URIs.
std::string base64(const std::string& bytes);

}  // namespace pl

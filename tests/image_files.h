// Images for tests, made on the spot.
#pragma once

// jpeglib.h wants FILE to be known.
#include <cstdio>

#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace pl::test {

using Pixels = std::vector<uint8_t>;  // (height, width, channels)

// Smooth, and different in every channel and corner.
inline Pixels gradient(int64_t height, int64_t width, int64_t channels = 3) {
  Pixels pixels;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        pixels.push_back(static_cast<uint8_t>((c == 0   ? 255 * x / width
                                               : c == 1 ? 255 * y / height
                                                        : 255 * (x + y) / (width + height))));
  return pixels;
}

// `across` and `down`: how much finer luma is than colour; `restart`: units between markers.
inline std::string jpeg(const Pixels& pixels, int64_t height, int64_t width, int channels = 3,
                        bool progressive = false, int across = 2, int down = 2, int restart = 0) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = channels;
  info.in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  info.comp_info[0].h_samp_factor = across;
  info.comp_info[0].v_samp_factor = down;
  info.restart_interval = static_cast<unsigned>(restart);
  jpeg_start_compress(&info, TRUE);
  for (int64_t y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<uint8_t*>(pixels.data()) + y * width * channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(out), size);
  free(out);
  return bytes;
}

}  // namespace pl::test

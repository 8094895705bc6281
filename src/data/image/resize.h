// Resizing row by row: rows go in from the top, finished rows come out, and only as many sums are
// held as the filter is high. So an image costs its target and some rows, never its pixels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace pl {

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// A part of an image.
struct ImageRegion {
  int64_t top = 0, left = 0;
  ImageSize size;
  bool operator==(const ImageRegion&) const = default;
};

// Which inputs one output is made of: inputs [first, first + count) with weights at `at`.
struct FilterTaps {
  struct Span {
    int32_t first = 0, count = 0, at = 0;
  };
  std::vector<Span> spans;     // of each output
  std::vector<float> weights;  // they sum to 1 for each output
};

// Triangles as wide as an output pixel (antialias, as Pillow and torchvision have it), or as an
// input pixel (as tf.image.resize has it by default). Pixels have their centre at one half.
FilterTaps triangle_taps(int64_t in, int64_t out, bool antialias);
// The same where the last sample reaches beyond the picture: `extent` samples of the `in` are in
// it, a whole number or not.
FilterTaps triangle_taps(int64_t in, double extent, int64_t out, bool antialias);

// From RGBX bytes, four a pixel, to RGB.
class RowResizer {
 public:
  // `to`: (out.height, out.width, 3) uint8.
  RowResizer(ImageSize in, ImageSize out, bool antialias, uint8_t* to);
  void add_row(const uint8_t* rgbx);  // in.height of them
  int64_t rows_done() const { return done_; }

  static Bytes bytes(ImageSize in, ImageSize out);  // bound of what it holds

 private:
  ImageSize in_, out_;
  FilterTaps across_, down_;
  uint8_t* to_;
  int64_t next_ = 0, done_ = 0;
  int64_t open_ = 0;         // rows of sums_
  std::vector<float> sums_;  // (open, in.width, 4): output row r is at r % open
};

}  // namespace pl

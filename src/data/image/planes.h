// Resizing a picture that comes as planes Y, Cb and Cr (or Y alone), of which the last two may be
// smaller: each goes straight to the target's size, and only the target's pixels become RGB.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "data/image/plane_rows.h"
#include "data/image/resize.h"

namespace pl {

struct PlaneShape {
  int64_t height = 0, width = 0;  // samples
  // How many of them the picture covers: 187.5 of 188 where 375 rows are halved.
  double rows = 0, columns = 0;
  int64_t at_once = 0;  // rows that come together; the stored width may be larger
};

class PlaneResizer {
 public:
  // `to`: (out.height, out.width, 3) uint8. One plane or three.
  PlaneResizer(const std::vector<PlaneShape>& planes, ImageSize out, bool antialias, uint8_t* to);
  // The next row of a plane; 16 bytes behind it can be read. Rows beyond its height are left out.
  void add_row(size_t plane, const uint8_t* samples);
  // Makes the rows that all is there for. To be called whenever at_once rows of each have come.
  void advance();
  int64_t rows_done() const { return done_; }

  // Bound of what it holds.
  static Bytes bytes(const std::vector<PlaneShape>& planes, ImageSize out, bool antialias);

 private:
  struct Taps {
    std::vector<MixedColumns::Span> spans;
    std::vector<int16_t> weights;
  };
  struct Plane {
    PlaneShape shape;
    Taps across, down;
    size_t width = 0;  // of a held row
    int64_t held = 0;  // rows of `samples`: input row y is at y % held
    int64_t next = 0;
    std::vector<int16_t> samples;  // (held, width)
    std::vector<int16_t> columns;  // (width, kPlaneRows)
    std::vector<const int16_t*> rows;
  };
  static Taps fixed(const FilterTaps& taps);
  static int64_t held_rows(const PlaneShape& shape, int64_t out, bool antialias);
  bool complete(const Plane& plane) const;
  void mix(Plane& plane);

  ImageSize out_;
  uint8_t* to_;
  std::vector<Plane> planes_;
  int64_t done_ = 0;
};

}  // namespace pl

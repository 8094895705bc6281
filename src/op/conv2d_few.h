// How the SIMD kernels of convolutions over few channels walk their images. An output line needs a
// patch of input lines, which is copied with its padding to the workspace; taps and the positions
// of a pool's window are offsets into it. The images are cut into chunks that depend on shapes
// alone, so that sums over chunks do not depend on threads, nor on whether a pool is fused.
#pragma once

#include <algorithm>
#include <vector>

#include "op/conv2d_pool.h"

namespace pl::cpu {

// One output line of one image, pooled or not (then the window has one position).
struct FewLine {
  const float* patch;    // (input lines, padded width, C)
  const Dim* taps;       // offsets of the kernel's taps within the patch
  const Dim* positions;  // offsets of the window's positions
  Dim tap_count;
  Dim rows, cols;  // of the window
  Dim step;        // floats from one output element's patch to the next one's
  Dim count, filters;
};

// What happens to a pooled element at the end.
struct PoolEnd {
  bool relu, masked;  // as in Conv2dPoolForm
};

// Chunks are groups of images, or strips of lines of one image where images are few.
class FewWalk {
 public:
  static constexpr Dim kStripLines = 12;  // strips are cut at multiples of it

  // `sums`: floats that a chunk has for itself in the workspace, before the patch.
  FewWalk(const Conv2dPoolForm& f, Dim sums);

  // A convolution without a pool.
  static Conv2dPoolForm unpooled(const Conv2dForm& f);

  Dim chunks() const { return chunks_; }
  Dim floats() const { return floats_; }  // of a chunk's part of the workspace
  Bytes workspace() const { return chunks_ * floats_ * static_cast<Bytes>(sizeof(float)); }
  Bytes footprint() const {
    return static_cast<Bytes>((taps_.size() + positions_.size()) * sizeof(Dim));
  }

  // Calls body(line, first output element of it) for the lines of a chunk. part: the chunk's
  // floats of the workspace.
  template <class Body>
  void chunk(Dim chunk, const float* x, float* part, const Body& body) const {
    const auto& [ph, pw] = f_.pool.window;
    FewLine line = line_;
    line.patch = part + sums_;
    line.taps = taps_.data();
    line.positions = positions_.data();
    const Dim image = f_.conv.window.h.in * f_.conv.window.w.in * f_.conv.channels;
    const Dim first = chunk / strips_ * images_, strip = chunk % strips_;
    const Dim top = strip * strip_lines_, bottom = std::min(ph.out, top + strip_lines_);
    for (Dim b = first; b < std::min(f_.conv.batch, first + images_); ++b)
      for (Dim r = top; r < bottom; ++r) {
        fill(x + b * image, r * ph.stride, part + sums_);
        body(line, (b * ph.out + r) * pw.out * f_.conv.filters);
      }
  }

 private:
  void fill(const float* image, Dim oh, float* patch) const;

  Conv2dPoolForm f_;
  FewLine line_;
  Dim pitch_, lines_;                  // of the patch
  Dim images_, strips_, strip_lines_;  // a chunk: images of one strip each, or a strip
  Dim chunks_, sums_, floats_;
  std::vector<Dim> taps_, positions_;
};

// Few enough channels and taps for these kernels.
bool few_channels(const Conv2dForm& f);

}  // namespace pl::cpu

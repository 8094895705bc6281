// Convolutions over small maps with many channels, tap by tap: for each position of the kernel one
// matrix product over the samples and those pixels for which it does not fall on padding (with 3x3
// kernels on 2x2 maps that is 4 of 9). Weights are read where they lie, once. What the three
// directions share; the loops are in conv2d_taps_simd.cc.
#pragma once

#include <vector>

#include "op/bfloat_pair.h"
#include "op/conv2d.h"

namespace pl::cpu {

inline constexpr Dim kTapsPanel = 64;  // channels that are packed together

// Packed pixels [from, from + count) of the input that tap `tap` adds to [to, to + count) of the
// output.
struct TapRun {
  Dim tap, from, to, count;
};

// The pixels of a map that are packed, in order: those that some tap reads or adds to.
struct TapPixels {
  Dim total;  // of the map
  std::vector<Dim> used;
  Dim count() const { return static_cast<Dim>(used.size()); }
};

struct TapsForm {
  Dim batch;
  TapPixels in, out;
  Dim depth, width;  // channels on either side, multiples of 16
  Dim taps;
  std::vector<TapRun> runs;  // by tap
};

// Whether the convolution is one that this is for. Does not look at the batch: a sample's bits are
// the same in any.
bool taps_suit(const Conv2dForm& f);
TapsForm taps_forward(const Conv2dForm& f);
TapsForm taps_backward(const Conv2dForm& f);  // from dy to dx

// The loops for images of T, float or Bfloat16, on the SIMD target in use.
template <class T>
struct TapsLoops {
  // Pixels [begin, end) of images (batch, pixels, channels) to [panel][pixel][sample][channel], or
  // across, with terms of samples; zeros behind the last.
  void (*pack)(const T* images, Dim batch, const TapPixels&, Dim channels, bool across, Dim begin,
               Dim end, Term<T>* packed);
  // One panel of the result, [pixel][sample][channel], from the packed input. w is (taps, depth,
  // width) or, turned, (taps, width, depth); `block` has room for 64 x 64 of it.
  void (*add)(const TapsForm&, const Term<T>* in, const T* w, bool turned, Dim panel,
              Term<T>* block, float* out);
  // A panel of the result to its place in images, with bias (or null) and relu.
  void (*unpack)(const TapsForm&, const float* packed, Dim panel, const float* bias, bool relu,
                 T* images);
  // The part of dw (taps, depth, width) for a panel of x and one of dy, both packed across. The
  // form is the forward one.
  void (*sum)(const TapsForm&, const Term<T>* x, const Term<T>* dy, Dim x_panel, Dim dy_panel,
              float* dw);
  const char* key;
  bool native;  // the target multiplies terms of T
};
TapsLoops<float> taps_loops(float);
TapsLoops<Bfloat16> taps_loops(Bfloat16);

std::unique_ptr<Kernel> conv2d_taps(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_taps(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_taps(const PrepareCall&);

}  // namespace pl::cpu

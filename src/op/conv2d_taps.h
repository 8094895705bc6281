// Convolutions over small maps with many channels, tap by tap: for each position of the kernel one
// matrix product over the samples and those pixels for which it does not fall on padding (with 3x3
// kernels on 2x2 maps that is 4 of 9). Weights are read where they lie, once. What the three
// directions share; the kernels are in conv2d_taps_simd.cc.
#pragma once

#include <vector>

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

std::unique_ptr<Kernel> conv2d_taps(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_taps(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_taps(const PrepareCall&);

}  // namespace pl::cpu

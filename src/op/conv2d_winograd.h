// Winograd's convolution with 3x3 kernels in tiles of 2x2 outputs, F(2x2, 3x3): 16 products where
// the definition has 36, and as exact as it. (Tiles of 4x4 take 2.25 products an output instead of
// 4, but lose a digit.) What the three directions share; the kernels are in
// conv2d_winograd_simd.cc.
#pragma once

#include "op/conv2d.h"

namespace pl::cpu {

inline constexpr Dim kTile = 2;   // outputs along an axis
inline constexpr Dim kPatch = 4;  // inputs along an axis
inline constexpr Dim kPlanes = kPatch * kPatch;

// A convolution of images (batch, h_in, w_in, depth) to (batch, h_out, w_out, width): the forward
// one, or the one from dy to dx.
struct WinogradForm {
  Dim batch, h_in, w_in, h_out, w_out;
  Dim before_h, before_w;  // padding
  Dim depth, width;        // channels on either side, multiples of 16
  Dim rows() const { return (h_out + kTile - 1) / kTile; }     // of tiles
  Dim columns() const { return (w_out + kTile - 1) / kTile; }  // of tiles
  Dim tiles() const { return batch * rows() * columns(); }
};

// Tiles of images (batch, height, width, channels). Tile (r, c) begins at pixel
// (2 r - before_h, 2 c - before_w).
struct WinogradTiles {
  Dim rows, columns;  // of tiles in an image
  Dim height, width, channels, before_h, before_w;
};

// Whether the convolution is one that this is for: enough channels, few enough weights, and tiles
// that are not mostly empty. Does not look at the batch: a sample's bits are the same in any.
bool winograd_suits(const Conv2dForm& f, const WinogradForm& tiles);
WinogradForm winograd_forward(const Conv2dForm& f);
WinogradForm winograd_backward(const Conv2dForm& f);  // from dy to dx

std::unique_ptr<Kernel> conv2d_winograd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_winograd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_winograd(const PrepareCall&);

}  // namespace pl::cpu

// Winograd's convolution with 3x3 kernels in tiles of 2x2 outputs, F(2x2, 3x3): 16 products where
// the definition has 36, and as exact as it. (Tiles of 4x4 take 2.25 products an output instead of
// 4, but lose a digit.) What the three directions share; the loops are in conv2d_winograd_simd.cc.
#pragma once

#include "op/bfloat_pair.h"
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

// Whether the convolution is one that this is for: enough channels, few enough weights, and tiles
// that are not mostly empty. Does not look at the batch: a sample's bits are the same in any.
bool winograd_suits(const Conv2dForm& f, const WinogradForm& tiles);
WinogradForm winograd_forward(const Conv2dForm& f);
WinogradForm winograd_backward(const Conv2dForm& f);  // from dy to dx

// Planes of terms in the workspace: kPlanes matrices, `stride` terms from one to the next.
template <class E>
struct WinogradPlanes {
  E* data;
  Dim stride;
  E* plane(Dim p) const { return data + p * stride; }
};

// What a block of tiles goes through on its way.
template <class T>
struct WinogradBlock {
  const T* x;
  WinogradPlanes<Term<T>> weights;  // (depth, width), terms along the depth
  WinogradPlanes<Term<T>> before;   // (tiles, depth), terms along the depth
  WinogradPlanes<float> after;      // (tiles, width)
  const float* bias;                // or null
  bool relu;
  T* y;
};

// What a chunk of tiles adds to the weight gradient.
template <class T>
struct WinogradChunk {
  const T *x, *dy;
  WinogradPlanes<Term<T>> x_planes, dy_planes;  // (tiles, depth) and (tiles, width), terms of tiles
  WinogradPlanes<float> sums;                   // (depth, width)
};

// The loops for images of T, float or Bfloat16, on the SIMD target in use.
template <class T>
struct WinogradLoops {
  // Planes of the weights w (3, 3, depth, width) or, turned, (3, 3, width, depth): rows [begin,
  // end) of the depth, multiples of 16.
  void (*weights)(const WinogradForm&, bool turned, const T* w, Dim begin, Dim end,
                  const WinogradPlanes<Term<T>>&);
  // The tiles [first, first + count) of the output.
  void (*block)(const WinogradForm&, const WinogradBlock<T>&, Dim first, Dim count);
  // Tiles [begin, end) of a chunk that starts at tile `first`; begin is even, and so is end but at
  // the chunk's end.
  void (*chunk)(const WinogradForm&, const WinogradChunk<T>&, Dim first, Dim begin, Dim end);
  // Plane p of the sums = or += the products of a chunk of `count` tiles.
  void (*sum)(const WinogradForm&, const WinogradChunk<T>&, Dim p, Dim count, bool add);
  // dw (3, 3, depth, width), rows [begin, end) of the depth, in float32 or as T.
  void (*kernel)(const WinogradForm&, const WinogradPlanes<float>& sums, Dim begin, Dim end,
                 float* dw);
  void (*own_kernel)(const WinogradForm&, const WinogradPlanes<float>& sums, Dim begin, Dim end,
                     T* dw);
  // sums[o] = sum over pixels of dy (pixels, width), for o in [begin, end).
  void (*bias)(const WinogradForm&, const T* dy, Dim begin, Dim end, float* sums);
  const char* key;
  bool native;  // the target multiplies terms of T
};
WinogradLoops<float> winograd_loops(float);
WinogradLoops<Bfloat16> winograd_loops(Bfloat16);

std::unique_ptr<Kernel> conv2d_winograd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_winograd(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_winograd(const PrepareCall&);

}  // namespace pl::cpu

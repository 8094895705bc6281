// Convolutions over few channels as ones over more: libraries multiply packs of 8 channels, and of
// 3 they waste most. Pixels under neighbouring taps become channels of one pixel. Exact: the same
// products, some of them with zeros.
#pragma once

#include <optional>

#include "op/conv2d.h"

namespace pl::cuda {

// Along an axis: packed position i holds positions i * step + d - before, d < group; tap t of the
// packed kernel holds taps t * step + d.
struct PackedAxis {
  Dim group = 1, step = 1, taps = 1, before = 0;
  Dim size = 0;  // packed positions
};
struct ConvPack {
  PackedAxis h, w;
  Dim channels = 0;  // of a packed pixel, a multiple of 8
};

// None: the convolution has channels enough, or a form that this is not for.
std::optional<ConvPack> conv_pack(const Conv2dForm& form);

// x (B, H, W, C) to packed images, w (KH, KW, C, O) to (O, TH, TW, packed C); both of 16 bits. And
// the gradient of the packed kernel back to dw, of dtype `to`.
void launch_pack_images(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* x, void* packed);
void launch_pack_kernel(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* w, void* packed);
void launch_unpack_gradient(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                            Dtype from, const void* packed, Dtype to, void* dw);

// Adds pixels (B, OH, OW, C) to every stride-th of images (B, H, W, C), from the first on.
void launch_add_strided(Backend& backend, const Conv2dForm& form, Dtype dtype, const void* pixels,
                        void* images);

}  // namespace pl::cuda

// What the layers over images (height, width, channels) check alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layers.h"

namespace pl {

// Throw UserError "[layer] what: expected ..., received ...".
void expect_positive(const char* layer, const char* what, int64_t value);
void expect_positive(const char* layer, const char* what, const Pair& values);
void expect_padding(const char* layer, const std::string& padding);  // 'valid' or 'same'

// Along one axis, of a transposed convolution whose kernel reaches over `reach` positions: `stride`
// times as large, and with 'valid' what the kernel reaches beyond that; with `more`, Keras's
// output_padding, instead as far as the last position reaches and that many behind.
Dim transposed_size(Dim in, Dim reach, Dim stride, bool same, std::optional<Dim> more);
// Throws UserError unless 0 <= more < stride.
void expect_output_padding(const char* layer, int64_t more, int64_t stride);

// The one input, an image; throws UserError "expected ..., received ..." for anything else.
const Shape& expect_image(const std::vector<Shape>& in);

// The largest window in the middle of images (B, H, W, C) with the shape of `size`.
Tensor crop_to_ratio(const Tensor& x, const std::array<int64_t, 2>& size);

std::vector<int64_t> list_of(const Pair& pair);
std::string text_of(const Pair& pair);  // "3x3"

}  // namespace pl

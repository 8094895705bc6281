// The inner loops of resizing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/image/resize.h"

namespace pl {

// sums (count) = or += weight * bytes (count).
void add_weighted(const uint8_t* bytes, float weight, bool first, float* sums, size_t count);
// to (outputs, 3) = the weighted sums of pixels (inputs, 4), rounded and within 0 to 255.
void squeeze_row(const float* pixels, const FilterTaps& taps, uint8_t* to);

}  // namespace pl

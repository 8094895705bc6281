// The inner loops of resizing planes one number at a time: what they compute, and what CPUs without
// vectors run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/image/plane_rows.h"

namespace pl::planes::plain {

inline int saturated(int value) { return std::clamp(value, -32768, 32767); }
inline int product(int sample, int weight) { return (sample * weight + (1 << 14)) >> 15; }

inline void widen_row(const uint8_t* bytes, size_t count, int16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<int16_t>((bytes[i] - 128) * 256);
}

inline void mix_rows(const MixedRow* rows, size_t width, int16_t* columns) {
  for (size_t x = 0; x < width; ++x)
    for (size_t r = 0; r < kPlaneRows; ++r) {
      int sum = 0;
      for (int32_t k = 0; k < rows[r].count; ++k)
        sum = saturated(sum + product(rows[r].rows[k][x], rows[r].weights[k]));
      columns[x * kPlaneRows + r] = static_cast<int16_t>(sum);
    }
}

inline int mixed(const MixedColumns& plane, size_t output, size_t row) {
  const MixedColumns::Span span = plane.spans[output];
  int sum = 0;
  for (int32_t k = 0; k < span.count; ++k)
    sum = saturated(sum +
                    product(plane.columns[static_cast<size_t>(span.first + k) * kPlaneRows + row],
                            plane.weights[span.at + k]));
  return sum;
}

inline uint8_t byte_of(int sample) {
  return static_cast<uint8_t>((saturated(saturated(sample) + 128) >> 8) + 128);
}

inline void squeeze_columns(const MixedColumns* planes, bool grey, size_t outputs, size_t rows,
                            uint8_t* to) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < outputs; ++o, to += 3) {
      const int y = mixed(planes[0], o, r);
      const int cb = grey ? 0 : mixed(planes[1], o, r), cr = grey ? 0 : mixed(planes[2], o, r);
      to[0] = byte_of(y + cr + product(cr, 13173));
      to[1] = byte_of(y - product(cb, 11277) - product(cr, 23401));
      to[2] = byte_of(y + cb + product(cb, 25297));
    }
}

}  // namespace pl::planes::plain

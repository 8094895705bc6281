#include "data/image/resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/processor.h"
#include "data/image/resize_rows.h"

namespace pl {

FilterTaps triangle_taps(int64_t in, int64_t out, bool antialias) {
  return triangle_taps(in, static_cast<double>(in), out, antialias);
}

FilterTaps triangle_taps(int64_t in, double extent, int64_t out, bool antialias) {
  check(in > 0 && out > 0, "sizes of images");
  FilterTaps taps;
  taps.spans.reserve(static_cast<size_t>(out));
  const double scale = extent / static_cast<double>(out);
  const double reach = antialias ? std::max(1.0, scale) : 1.0;
  for (int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach)));
    const auto end = std::min<int64_t>(in, static_cast<int64_t>(std::ceil(centre + reach)) + 1);
    FilterTaps::Span span{.first = -1, .at = static_cast<int32_t>(taps.weights.size())};
    double sum = 0;
    for (int64_t i = first; i < end; ++i) {
      const double weight = 1.0 - std::abs(static_cast<double>(i) + 0.5 - centre) / reach;
      if (weight <= 0) {
        if (span.count > 0) break;
        continue;
      }
      if (span.first < 0) span.first = static_cast<int32_t>(i);
      ++span.count;
      sum += weight;
      taps.weights.push_back(static_cast<float>(weight));
    }
    for (int32_t k = 0; k < span.count; ++k) {
      float& weight = taps.weights[static_cast<size_t>(span.at + k)];
      weight = static_cast<float>(weight / sum);
    }
    taps.spans.push_back(span);
  }
  return taps;
}

RowResizer::RowResizer(ImageSize in, ImageSize out, bool antialias, uint8_t* to)
    : in_(in),
      out_(out),
      across_(triangle_taps(in.width, out.width, antialias)),
      down_(triangle_taps(in.height, out.height, antialias)),
      to_(to) {
  limit_simd();
  // Rows whose spans overlap at one input row are open together.
  open_ = 1;
  for (size_t r = 0, end = 0; r < down_.spans.size(); ++r) {
    const int32_t last = down_.spans[r].first + down_.spans[r].count - 1;
    while (end < down_.spans.size() && down_.spans[end].first <= last) ++end;
    open_ = std::max<int64_t>(open_, static_cast<int64_t>(end - r));
  }
  sums_.assign(static_cast<size_t>(open_ * in.width * 4), 0.0f);
}

Bytes RowResizer::bytes(ImageSize in, ImageSize out) {
  const int64_t grown = in.height > 0 ? out.height / in.height : 0;
  return (2 * grown + 6) * in.width * 16 + 8 * (in.height + in.width) * 2 +
         28 * (out.height + out.width) + 4096;
}

void RowResizer::add_row(const uint8_t* rgbx) {
  const int64_t y = next_++;
  const auto width = static_cast<size_t>(in_.width);
  for (int64_t r = done_; r < out_.height; ++r) {
    const FilterTaps::Span& span = down_.spans[static_cast<size_t>(r)];
    if (span.first > y) break;
    const auto last = span.first + span.count - 1;
    float* sums = sums_.data() + static_cast<size_t>(r % open_) * width * 4;
    if (y <= last)
      add_weighted(rgbx, down_.weights[static_cast<size_t>(span.at + (y - span.first))],
                   y == span.first, sums, width * 4);
    if (y != last) continue;
    squeeze_row(sums, across_, to_ + r * out_.width * 3);
    ++done_;
  }
}

}  // namespace pl

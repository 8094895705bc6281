// resize_image: two passes of weighted sums, one output row at a time, so that nothing but a row of
// sums is held.
#include <cmath>

#include "data/image/augment.h"
#include "data/image/image_rows.h"

namespace pl {
namespace {

// Keys's with a = -1/2.
double cubic(double x) {
  x = std::fabs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

FilterTaps taps_of(int64_t in, int64_t out, ResizeMethod method, bool antialias) {
  if (method == ResizeMethod::bilinear) return triangle_taps(in, out, antialias);
  const bool area = method == ResizeMethod::area;
  FilterTaps taps;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = antialias ? std::max(scale, 1.0) : 1.0;
  const double radius = 2 * stretch;
  for (int64_t o = 0; o < out; ++o) {
    const double begin = static_cast<double>(o) * scale, centre = begin + scale / 2;
    const double low = area ? begin : centre - radius - 0.5;
    const double high = area ? begin + scale : centre + radius + 0.5;
    const auto first = std::clamp(static_cast<int64_t>(std::floor(low)), int64_t{0}, in - 1);
    const auto last = std::clamp(static_cast<int64_t>(std::ceil(high)) - 1, first, in - 1);
    FilterTaps::Span span{static_cast<int32_t>(first), static_cast<int32_t>(last - first + 1),
                          static_cast<int32_t>(taps.weights.size())};
    double sum = 0;
    for (int64_t i = first; i <= last; ++i) {
      const auto at = static_cast<double>(i);
      const double x = (at + 0.5 - centre) / stretch;
      const double overlap = std::min(at + 1, begin + scale) - std::max(at, begin);
      const double weight = area ? std::max(0.0, overlap) : cubic(x);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    // Beyond the edge there is nothing; the rest counts for all.
    for (size_t k = static_cast<size_t>(span.at); k < taps.weights.size(); ++k)
      taps.weights[k] = static_cast<float>(taps.weights[k] / sum);
    taps.spans.push_back(span);
  }
  return taps;
}

template <class T>
void resize(const Tensor& image, const ImageFacts& in, ImageSize size, const FilterTaps& down,
            const FilterTaps& across, const Tensor& out) {
  const T* const from = image.data_as<T>();
  T* to = out.data_as<T>();
  const int64_t row = in.width * in.channels;
  std::vector<float> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < size.height; ++y) {
    const FilterTaps::Span& rows = down.spans[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int32_t k = 0; k < rows.count; ++k) {
      const float weight = down.weights[static_cast<size_t>(rows.at + k)];
      const T* const line = from + (rows.first + k) * row;
      for (int64_t i = 0; i < row; ++i)
        sums[static_cast<size_t>(i)] += weight * static_cast<float>(line[i]);
    }
    for (int64_t x = 0; x < size.width; ++x) {
      const FilterTaps::Span& columns = across.spans[static_cast<size_t>(x)];
      for (int64_t c = 0; c < in.channels; ++c) {
        float value = 0;
        for (int32_t k = 0; k < columns.count; ++k)
          value += across.weights[static_cast<size_t>(columns.at + k)] *
                   sums[static_cast<size_t>((columns.first + k) * in.channels + c)];
        *to++ = to_pixel<T>(value);
      }
    }
  }
}

}  // namespace

ImageFacts image_facts(const char* function, const Tensor& image) {
  const Shape& shape = image.shape();
  const bool kind = image.dtype() == Dtype::uint8 || image.dtype() == Dtype::float32;
  if (!kind || shape.rank() != 3 || shape.elements() == 0)
    throw UserError("[data] " + std::string(function) +
                    ": expected an image (height, width, channels) of uint8 or float32, received " +
                    image.meta().text());
  const size_t size = image.dtype() == Dtype::uint8 ? 1 : 4;
  return {shape[0], shape[1], shape[2], static_cast<size_t>(shape[2]) * size};
}

Tensor resize_image(const Tensor& image, ImageSize size, ResizeMethod method, bool antialias) {
  constexpr int64_t kMost = 1 << 24;
  const ImageFacts in = image_facts("resize_image", image);
  for (int64_t side : {size.height, size.width})
    if (side < 1 || side > kMost)
      throw UserError("[data] resize_image: expected a size of 1 to 16777216 pixels, received " +
                      std::to_string(side));
  const Tensor out = image_like(image, size);
  const FilterTaps down = taps_of(in.height, size.height, method, antialias);
  const FilterTaps across = taps_of(in.width, size.width, method, antialias);
  with_pixels(image, [&]<class T>() { resize<T>(image, in, size, down, across, out); });
  return out;
}

}  // namespace pl

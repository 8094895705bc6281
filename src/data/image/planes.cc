#include "data/image/planes.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/processor.h"

namespace pl {
namespace {

constexpr auto kGroup = static_cast<int64_t>(kPlaneRows);

size_t held_width(const PlaneShape& shape) {
  return (static_cast<size_t>(shape.width) + kPlaneLanes - 1) / kPlaneLanes * kPlaneLanes;
}

}  // namespace

// To 2^-15, and still summing to 1: the largest takes what rounding left.
PlaneResizer::Taps PlaneResizer::fixed(const FilterTaps& taps) {
  Taps out;
  out.weights.reserve(taps.weights.size());
  out.spans.reserve(taps.spans.size());
  for (const FilterTaps::Span& span : taps.spans) {
    int32_t left = 1 << 15;
    size_t largest = out.weights.size();
    for (int32_t k = 0; k < span.count; ++k) {
      const float weight = taps.weights[static_cast<size_t>(span.at + k)];
      const auto rounded =
          std::min<int32_t>(32767, static_cast<int32_t>(std::lround(weight * 32768)));
      left -= rounded;
      out.weights.push_back(static_cast<int16_t>(rounded));
      if (rounded > out.weights[largest]) largest = out.weights.size() - 1;
    }
    out.weights[largest] =
        static_cast<int16_t>(std::min<int32_t>(32767, out.weights[largest] + left));
    out.spans.push_back({span.first, span.count, span.at});
  }
  return out;
}

// A group of output rows looks at a window of input rows; what comes together may pass it, in each
// plane at another row.
int64_t PlaneResizer::held_rows(const PlaneShape& shape, int64_t out, bool antialias) {
  const double scale = shape.rows / static_cast<double>(out);
  const double reach = antialias ? std::max(1.0, scale) : 1.0;
  const auto window =
      static_cast<int64_t>(std::ceil(scale * static_cast<double>(kGroup - 1) + 2 * reach)) + 2;
  return window + 3 * shape.at_once;
}

Bytes PlaneResizer::bytes(const std::vector<PlaneShape>& planes, ImageSize out, bool antialias) {
  Bytes sum = 0;
  for (const PlaneShape& shape : planes) {
    const auto width = static_cast<Bytes>(held_width(shape));
    sum += 2 * width * (held_rows(shape, out.height, antialias) + kGroup);
    // Taps as numbers, and as they are made.
    const Bytes taps = 2 * (shape.height + shape.width) + 4 * (out.height + out.width);
    sum += 8 * taps + 24 * (out.height + out.width) + 8 * 2 * shape.height;
  }
  return sum + 4096;
}

PlaneResizer::PlaneResizer(const std::vector<PlaneShape>& planes, ImageSize out, bool antialias,
                           uint8_t* to)
    : out_(out), to_(to) {
  limit_simd();
  check(planes.size() == 1 || planes.size() == 3, "one plane or three");
  planes_.reserve(planes.size());
  for (const PlaneShape& shape : planes) {
    Plane& plane = planes_.emplace_back();
    plane.shape = shape;
    plane.across = fixed(triangle_taps(shape.width, shape.columns, out.width, antialias));
    plane.down = fixed(triangle_taps(shape.height, shape.rows, out.height, antialias));
    plane.width = held_width(shape);
    plane.held = held_rows(shape, out.height, antialias);
    plane.samples.resize(static_cast<size_t>(plane.held) * plane.width);
    plane.columns.resize(plane.width * kPlaneRows);
  }
}

void PlaneResizer::add_row(size_t at, const uint8_t* samples) {
  Plane& plane = planes_[at];
  if (plane.next == plane.shape.height) return;
  const auto row = static_cast<size_t>(plane.next++ % plane.held);
  widen_row(samples, static_cast<size_t>(plane.shape.width),
            plane.samples.data() + row * plane.width);
}

bool PlaneResizer::complete(const Plane& plane) const {
  const int64_t last = std::min(done_ + kGroup, out_.height) - 1;
  const MixedColumns::Span& span = plane.down.spans[static_cast<size_t>(last)];
  return plane.next >= span.first + span.count;
}

void PlaneResizer::mix(Plane& plane) {
  const auto& spans = plane.down.spans;
  check(plane.next - spans[static_cast<size_t>(done_)].first <= plane.held, "rows that are held");
  const auto last = static_cast<size_t>(out_.height - 1);
  plane.rows.clear();
  for (size_t r = 0; r < kPlaneRows; ++r) {
    const auto& span = spans[std::min(static_cast<size_t>(done_) + r, last)];
    for (int32_t k = 0; k < span.count; ++k)
      plane.rows.push_back(plane.samples.data() +
                           static_cast<size_t>((span.first + k) % plane.held) * plane.width);
  }
  MixedRow mixed[kPlaneRows];
  const int16_t* const* rows = plane.rows.data();
  for (size_t r = 0; r < kPlaneRows; ++r) {
    const auto& span = spans[std::min(static_cast<size_t>(done_) + r, last)];
    mixed[r] = {rows, plane.down.weights.data() + span.at, span.count};
    rows += span.count;
  }
  mix_rows(mixed, plane.width, plane.columns.data());
}

void PlaneResizer::advance() {
  while (done_ < out_.height && std::all_of(planes_.begin(), planes_.end(),
                                            [this](const Plane& p) { return complete(p); })) {
    MixedColumns columns[3] = {};
    for (size_t p = 0; p < planes_.size(); ++p) {
      mix(planes_[p]);
      columns[p] = {planes_[p].columns.data(), planes_[p].across.spans.data(),
                    planes_[p].across.weights.data()};
    }
    const int64_t rows = std::min(kGroup, out_.height - done_);
    squeeze_columns(columns, planes_.size() == 1, static_cast<size_t>(out_.width),
                    static_cast<size_t>(rows), to_ + done_ * out_.width * 3);
    done_ += rows;
  }
}

}  // namespace pl

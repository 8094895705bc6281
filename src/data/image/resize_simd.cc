// The inner loops of resizing, compiled once for each SIMD target. Products are rounded before they
// are added, in the same order, so that all targets give the same bytes.
#include "data/image/resize_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/image/resize_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pl::image::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add_weighted_lanes(const uint8_t* bytes, float weight, bool first, float* sums, size_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> db;
  const auto weights = hn::Set(d, weight);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto values = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, bytes + i)));
    const auto product = hn::Mul(values, weights);
    hn::StoreU(first ? product : hn::Add(hn::LoadU(d, sums + i), product), d, sums + i);
  }
  for (; i < count; ++i) {
    const float product = static_cast<float>(bytes[i]) * weight;
    sums[i] = first ? product : sums[i] + product;
  }
}

// A pixel is one vector of four.
void squeeze_row_lanes(const float* pixels, const FilterTaps& taps, uint8_t* to) {
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const auto half = hn::Set(d, 0.5f), zero = hn::Zero(d), most = hn::Set(d, 255.0f);
  HWY_ALIGN int32_t rounded[4] = {};
  for (const FilterTaps::Span& span : taps.spans) {
    const float* from = pixels + static_cast<size_t>(span.first) * 4;
    const float* weight = taps.weights.data() + span.at;
    auto sum = hn::Mul(hn::LoadU(d, from), hn::Set(d, weight[0]));
    for (int32_t k = 1; k < span.count; ++k)
      sum = hn::Add(sum, hn::Mul(hn::LoadU(d, from + 4 * k), hn::Set(d, weight[k])));
    sum = hn::Min(hn::Max(hn::Add(sum, half), zero), most);
    hn::Store(hn::ConvertTo(di, sum), di, rounded);
    to[0] = static_cast<uint8_t>(rounded[0]);
    to[1] = static_cast<uint8_t>(rounded[1]);
    to[2] = static_cast<uint8_t>(rounded[2]);
    to += 3;
  }
}

}  // namespace pl::image::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl {
namespace image {
HWY_EXPORT(add_weighted_lanes);
HWY_EXPORT(squeeze_row_lanes);
}  // namespace image

void add_weighted(const uint8_t* bytes, float weight, bool first, float* sums, size_t count) {
  using namespace image;
  HWY_DYNAMIC_DISPATCH(add_weighted_lanes)(bytes, weight, first, sums, count);
}

void squeeze_row(const float* pixels, const FilterTaps& taps, uint8_t* to) {
  using namespace image;
  HWY_DYNAMIC_DISPATCH(squeeze_row_lanes)(pixels, taps, to);
}

}  // namespace pl
#endif

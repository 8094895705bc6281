// The inner loops of resizing planes, compiled once for each SIMD target. All arithmetic is that of
// integers, so that all targets give the same bytes.
#include <algorithm>
#include <cstring>

#include "data/image/plane_rows-inl.h"
#include "data/image/plane_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/image/plane_rows_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pl::planes::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

void widen_row_lanes(const uint8_t* bytes, size_t count, int16_t* to) {
  plain::widen_row(bytes, count, to);
}
void mix_rows_lanes(const MixedRow* rows, size_t width, int16_t* columns) {
  plain::mix_rows(rows, width, columns);
}
void squeeze_columns_lanes(const MixedColumns* planes, bool grey, size_t outputs, size_t rows,
                           uint8_t* to) {
  plain::squeeze_columns(planes, grey, outputs, rows, to);
}

#else

// 8 or 16 lanes: one or two blocks of 8.
using D = hn::CappedTag<int16_t, 16>;
using V = hn::Vec<D>;
constexpr size_t kBlock = 8;

// Each block of 8 vectors by 8 lanes is transposed: an index of 6 bits turned by one, three times.
HWY_INLINE void transpose(V (&v)[kBlock]) {
  const D d;
  for (int turn = 0; turn < 3; ++turn) {
    V w[kBlock];
    for (size_t i = 0; i < 4; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + 4]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 4]);
    }
    for (size_t i = 0; i < kBlock; ++i) v[i] = w[i];
  }
}

// Block b of a vector to to[b * apart].
HWY_INLINE void store_blocks(V v, int16_t* to, size_t apart) {
  const D d;
  if constexpr (hn::MaxLanes(D()) == 2 * kBlock) {
    const hn::Half<D> half;
    hn::StoreU(hn::LowerHalf(half, v), half, to);
    hn::StoreU(hn::UpperHalf(half, v), half, to + apart);
  } else {
    hn::StoreU(v, d, to);
  }
}

void widen_row_lanes(const uint8_t* bytes, size_t count, int16_t* to) {
  const D d;
  const hn::Rebind<uint8_t, D> db;
  const hn::RebindToUnsigned<D> du;
  const auto sign = hn::Set(du, uint16_t{0x8000});
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto wide = hn::ShiftLeft<8>(hn::PromoteTo(du, hn::LoadU(db, bytes + i)));
    hn::StoreU(hn::BitCast(d, hn::Xor(wide, sign)), d, to + i);
  }
}

// Sums of weights are 1, so that only what rounding adds can saturate.
void mix_rows_lanes(const MixedRow* rows, size_t width, int16_t* columns) {
  const D d;
  for (size_t x = 0; x < width; x += hn::Lanes(d))
    for (size_t r = 0; r < kPlaneRows; r += kBlock) {
      V v[kBlock];
      for (size_t i = 0; i < kBlock; ++i) {
        const MixedRow& row = rows[r + i];
        V sum = hn::MulFixedPoint15(hn::LoadU(d, row.rows[0] + x), hn::Set(d, row.weights[0]));
        for (int32_t k = 1; k < row.count; ++k)
          sum = hn::SaturatedAdd(
              sum, hn::MulFixedPoint15(hn::LoadU(d, row.rows[k] + x), hn::Set(d, row.weights[k])));
        v[i] = sum;
      }
      transpose(v);
      for (size_t i = 0; i < kBlock; ++i)
        store_blocks(v[i], columns + (x + i) * kPlaneRows + r, kBlock * kPlaneRows);
    }
}

HWY_INLINE V mixed(const MixedColumns& plane, size_t output, size_t row) {
  const D d;
  const MixedColumns::Span span = plane.spans[output];
  const int16_t* from = plane.columns + static_cast<size_t>(span.first) * kPlaneRows + row;
  const int16_t* weight = plane.weights + span.at;
  V sum = hn::MulFixedPoint15(hn::LoadU(d, from), hn::Set(d, weight[0]));
  for (int32_t k = 1; k < span.count; ++k)
    sum = hn::SaturatedAdd(
        sum, hn::MulFixedPoint15(hn::LoadU(d, from + static_cast<size_t>(k) * kPlaneRows),
                                 hn::Set(d, weight[k])));
  return sum;
}

// R and G, and B, of some rows of one output, as bytes in the halves of a lane. Samples reach from
// black to white, so that saturation is what keeps colours within 0 to 255: it strikes only where
// what is still to be added goes the same way.
HWY_INLINE void color(const MixedColumns* planes, bool grey, size_t output, size_t row, V& rg,
                      V& b) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const V half = hn::Set(d, 128);
  const V y = mixed(planes[0], output, row);
  V red = y, green = y, blue = y;
  if (!grey) {
    const V cb = mixed(planes[1], output, row), cr = mixed(planes[2], output, row);
    red = hn::SaturatedAdd(hn::SaturatedAdd(y, cr), hn::MulFixedPoint15(cr, hn::Set(d, 13173)));
    blue = hn::SaturatedAdd(hn::SaturatedAdd(y, cb), hn::MulFixedPoint15(cb, hn::Set(d, 25297)));
    const V from_cb = hn::MulFixedPoint15(cb, hn::Set(d, 11277));
    const V from_cr = hn::MulFixedPoint15(cr, hn::Set(d, 23401));
    // Both the same way may be more than a lane holds: the rest is taken off after.
    const V both = hn::SaturatedAdd(from_cb, from_cr);
    const V rest = hn::Sub(from_cb, hn::Sub(both, from_cr));
    green = hn::SaturatedSub(hn::SaturatedSub(y, both), rest);
  }
  const auto high = hn::Set(du, uint16_t{0xFF00});
  const auto r = hn::ShiftRight<8>(hn::BitCast(du, hn::SaturatedAdd(red, half)));
  const auto g = hn::And(hn::BitCast(du, hn::SaturatedAdd(green, half)), high);
  const auto signs = hn::Set(du, uint16_t{0x8080});
  rg = hn::BitCast(d, hn::Xor(hn::Or(r, g), signs));
  const auto last = hn::ShiftRight<8>(hn::BitCast(du, hn::SaturatedAdd(blue, half)));
  b = hn::BitCast(d, hn::Xor(last, hn::Set(du, uint16_t{0x0080})));
}

// 8 pixels of one row in each block, as RG and B: to 24 bytes, of which 28 are written.
HWY_INLINE void store_pixels(V rg, V b, uint8_t* const* to, size_t pixels) {
  const D d;
  const hn::Repartition<uint8_t, D> d8;
  HWY_ALIGN static constexpr uint8_t kPack[32] = {0,  1, 2,  4,  5,  6,  8, 9, 10, 12, 13,
                                                  14, 3, 3,  3,  3,  0,  1, 2, 4,  5,  6,
                                                  8,  9, 10, 12, 13, 14, 3, 3, 3,  3};
  const auto pack = hn::Load(d8, kPack);
  const auto four = [&](V v) {
    return hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(d8, v), pack));
  };
  HWY_ALIGN int16_t low[2 * kBlock], high[2 * kBlock];
  hn::Store(four(hn::InterleaveLower(d, rg, b)), d, low);
  hn::Store(four(hn::InterleaveUpper(d, rg, b)), d, high);
  for (size_t k = 0; k < hn::Lanes(d) / kBlock; ++k) {
    if (!to[k]) continue;
    if (pixels > kBlock) {
      std::memcpy(to[k], low + k * kBlock, 16);
      std::memcpy(to[k] + 12, high + k * kBlock, 16);
    } else {  // at the end of a row nothing behind it is touched
      uint8_t last[28];
      std::memcpy(last, low + k * kBlock, 16);
      std::memcpy(last + 12, high + k * kBlock, 16);
      std::memcpy(to[k], last, 3 * pixels);
    }
  }
}

void squeeze_columns_lanes(const MixedColumns* planes, bool grey, size_t outputs, size_t rows,
                           uint8_t* to) {
  const D d;
  for (size_t o = 0; o < outputs; o += kBlock)
    for (size_t r = 0; r < rows; r += hn::Lanes(d)) {
      V rg[kBlock], b[kBlock];
      for (size_t i = 0; i < kBlock; ++i)
        color(planes, grey, std::min(o + i, outputs - 1), r, rg[i], b[i]);
      transpose(rg);
      transpose(b);
      for (size_t i = 0; i < kBlock; ++i) {
        uint8_t* places[2] = {nullptr, nullptr};
        for (size_t k = 0; k < hn::Lanes(d) / kBlock; ++k)
          if (r + k * kBlock + i < rows) places[k] = to + ((r + k * kBlock + i) * outputs + o) * 3;
        store_pixels(rg[i], b[i], places, outputs - o);
      }
    }
}

#endif

}  // namespace pl::planes::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl {
namespace planes {
HWY_EXPORT(widen_row_lanes);
HWY_EXPORT(mix_rows_lanes);
HWY_EXPORT(squeeze_columns_lanes);
}  // namespace planes

void widen_row(const uint8_t* bytes, size_t count, int16_t* to) {
  using namespace planes;
  HWY_DYNAMIC_DISPATCH(widen_row_lanes)(bytes, count, to);
}

void mix_rows(const MixedRow* rows, size_t width, int16_t* columns) {
  using namespace planes;
  HWY_DYNAMIC_DISPATCH(mix_rows_lanes)(rows, width, columns);
}

void squeeze_columns(const MixedColumns* planes, bool grey, size_t outputs, size_t rows,
                     uint8_t* to) {
  using namespace planes;
  HWY_DYNAMIC_DISPATCH(squeeze_columns_lanes)(planes, grey, outputs, rows, to);
}

}  // namespace pl
#endif

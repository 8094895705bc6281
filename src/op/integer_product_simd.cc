// Integer products, blocked, compiled once for each SIMD target: b is packed into panels of a few
// vectors' columns, and the sums of some rows of one panel stay in registers.
#include "op/integer_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/integer_product_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kProductRows = 6;
constexpr int kProductVectors = 2;

// Unsigned, which wraps as signed integers should.
template <class T>
using Lanes = hn::ScalableTag<T>;
template <class T>
constexpr Dim kLaneCount = static_cast<Dim>(hn::MaxLanes(Lanes<T>()));
template <class T>
constexpr Dim kPanel = kProductVectors* kLaneCount<T>;

// An operand's element (i, j) is at[i * row + j * column].
template <class T>
struct Strided {
  const T* at;
  Dim row, column;
};

// Columns [j, j + kPanel) of b, row after row; zeros beyond the last one.
template <class T>
void pack_panel(const Strided<T>& b, Dim k, Dim j, Dim columns, T* panel) {
  for (Dim r = 0; r < k; ++r, panel += kPanel<T>) {
    const T* from = b.at + r * b.row + j * b.column;
    if (b.column == 1)
      std::copy_n(from, columns, panel);
    else
      for (Dim c = 0; c < columns; ++c) panel[c] = from[c * b.column];
    std::fill(panel + columns, panel + kPanel<T>, T(0));
  }
}

// The product of `rows` rows of a and a panel; its first `columns` go to c.
template <int rows, class T>
void product_block(const Strided<T>& a, const T* panel, Dim k, T* c, Dim n, Dim columns) {
  const Lanes<T> d;
  hn::Vec<Lanes<T>> sum[rows][kProductVectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < kProductVectors; ++v) sum[r][v] = hn::Zero(d);
  for (Dim i = 0; i < k; ++i, panel += kPanel<T>) {
    hn::Vec<Lanes<T>> right[kProductVectors];
    for (int v = 0; v < kProductVectors; ++v) right[v] = hn::LoadU(d, panel + v * kLaneCount<T>);
    for (int r = 0; r < rows; ++r) {
      const auto left = hn::Set(d, a.at[r * a.row + i * a.column]);
      for (int v = 0; v < kProductVectors; ++v)
        sum[r][v] = hn::Add(sum[r][v], hn::Mul(left, right[v]));
    }
  }
  T whole[kPanel<T>];
  for (int r = 0; r < rows; ++r, c += n) {
    T* to = columns == kPanel<T> ? c : whole;
    for (int v = 0; v < kProductVectors; ++v) hn::StoreU(sum[r][v], d, to + v * kLaneCount<T>);
    if (to != c) std::copy_n(whole, columns, c);
  }
}

template <class T>
void product_rows(Dim rows, const Strided<T>& a, const T* panel, Dim k, T* c, Dim n, Dim columns) {
  switch (rows) {
    case 1:
      return product_block<1>(a, panel, k, c, n, columns);
    case 2:
      return product_block<2>(a, panel, k, c, n, columns);
    case 3:
      return product_block<3>(a, panel, k, c, n, columns);
    case 4:
      return product_block<4>(a, panel, k, c, n, columns);
    case 5:
      return product_block<5>(a, panel, k, c, n, columns);
    default:
      return product_block<6>(a, panel, k, c, n, columns);
  }
}

template <class T>
void product_of(const IntegerProduct& p, int threads, const void* left, const void* right,
                void* out, void* workspace) {
  const Strided<T> a{static_cast<const T*>(left), p.transpose_a ? 1 : p.k, p.transpose_a ? p.m : 1};
  const Strided<T> b{static_cast<const T*>(right), p.transpose_b ? 1 : p.n,
                     p.transpose_b ? p.k : 1};
  T* c = static_cast<T*>(out);
  T* packed = static_cast<T*>(workspace);
  const Dim panels = (p.n + kPanel<T> - 1) / kPanel<T>;
  auto columns = [&](Dim panel) { return std::min(kPanel<T>, p.n - panel * kPanel<T>); };
  parallel_ranges(threads, panels, p.n * p.k, [&](Dim begin, Dim end) {
    for (Dim j = begin; j < end; ++j)
      pack_panel(b, p.k, j * kPanel<T>, columns(j), packed + j * p.k * kPanel<T>);
  });
  // All rows of one panel after the other: it stays in a core's cache.
  const Dim bands = (p.m + kProductRows - 1) / kProductRows;
  parallel_ranges(threads, panels * bands, p.m * p.n * p.k, [&](Dim begin, Dim end) {
    for (Dim at = begin; at < end; ++at) {
      const Dim j = at / bands, i = at % bands * kProductRows;
      product_rows(std::min<Dim>(kProductRows, p.m - i),
                   Strided<T>{a.at + i * a.row, a.row, a.column}, packed + j * p.k * kPanel<T>, p.k,
                   c + i * p.n + j * kPanel<T>, p.n, columns(j));
    }
  });
}

void integer_product(const IntegerProduct& p, int threads, const void* a, const void* b, void* c,
                     void* workspace) {
  if (p.dtype == Dtype::int32)
    product_of<uint32_t>(p, threads, a, b, c, workspace);
  else
    product_of<uint64_t>(p, threads, a, b, c, workspace);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(integer_product);

Bytes IntegerProduct::workspace_bytes() const {
  constexpr Dim kWidestPanel = 64;  // of any target
  return align_up(n, kWidestPanel) * k * size_of(dtype);
}

void IntegerProduct::run(int threads, const void* a, const void* b, void* c,
                         void* workspace) const {
  HWY_DYNAMIC_DISPATCH(integer_product)(*this, threads, a, b, c, workspace);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE

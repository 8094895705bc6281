// Integer products, blocked, compiled once for each SIMD target: pieces of b are packed into panels
// of a few vectors' columns, and the sums of some rows of one panel stay in registers. Sums of
// integers are exact in any order.
#include "op/integer_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/integer_product_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <utility>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kProductRows = 6;
constexpr int kProductVectors = 2;
constexpr Dim kProductDepth = 256;  // rows of a packed panel

// Unsigned, which wraps as signed integers should.
template <class T>
using Lanes = hn::ScalableTag<T>;
template <class T>
constexpr Dim kLaneCount = static_cast<Dim>(hn::MaxLanes(Lanes<T>()));
template <class T>
constexpr Dim kPanel = kProductVectors* kLaneCount<T>;

// The matrices of one operand: product i takes number i % count. Element (i, j) of a matrix is
// `row` and `column` steps from its first one.
template <class T>
struct Operand {
  const T* at;
  Dim row, column, size, count;

  const T* in(Dim product, Dim i, Dim j) const {
    return at + product % count * size + i * row + j * column;
  }
};

template <class T>
struct Products {
  Operand<T> a, b;
  T* c;
  Dim m, n, k, products;
};

// A few rows of a, and columns of b that lie side by side, with `step` from row to row.
template <class T>
struct Block {
  const T* a;
  Dim a_row, a_column;
  const T* b;
  Dim step, k;
  T* c;
  Dim n, columns;
  bool adds;  // to what c has
};

// `columns` columns of `k` rows, row after row. What lies beyond the last column stays as it is.
template <class T>
void pack_panel(const Operand<T>& b, const T* from, Dim k, Dim columns, T* panel) {
  for (Dim r = 0; r < k; ++r, from += b.row, panel += kPanel<T>)
    if (b.column == 1 && columns == kPanel<T>)
      std::copy_n(from, kPanel<T>, panel);
    else
      for (Dim c = 0; c < columns; ++c) panel[c] = from[c * b.column];
}

template <int rows, class T>
void product_block(const Block<T>& f) {
  const Lanes<T> d;
  hn::Vec<Lanes<T>> sum[rows][kProductVectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < kProductVectors; ++v) sum[r][v] = hn::Zero(d);
  const T* b = f.b;
  for (Dim i = 0; i < f.k; ++i, b += f.step) {
    hn::Vec<Lanes<T>> right[kProductVectors];
    for (int v = 0; v < kProductVectors; ++v) right[v] = hn::LoadU(d, b + v * kLaneCount<T>);
    for (int r = 0; r < rows; ++r) {
      const auto left = hn::Set(d, f.a[r * f.a_row + i * f.a_column]);
      for (int v = 0; v < kProductVectors; ++v)
        sum[r][v] = hn::Add(sum[r][v], hn::Mul(left, right[v]));
    }
  }
  T whole[kPanel<T>];
  for (int r = 0; r < rows; ++r) {
    T* c = f.c + r * f.n;
    T* to = f.columns < kPanel<T> || f.adds ? whole : c;
    for (int v = 0; v < kProductVectors; ++v) hn::StoreU(sum[r][v], d, to + v * kLaneCount<T>);
    if (f.adds)
      for (Dim j = 0; j < f.columns; ++j) c[j] += whole[j];
    else if (to != c)
      std::copy_n(whole, f.columns, c);
  }
}

template <class T>
void product_rows(Dim rows, const Block<T>& f) {
  switch (rows) {
    case 1:
      return product_block<1>(f);
    case 2:
      return product_block<2>(f);
    case 3:
      return product_block<3>(f);
    case 4:
      return product_block<4>(f);
    case 5:
      return product_block<5>(f);
    default:
      return product_block<6>(f);
  }
}

// Columns [j, j + kPanel) of all products with b's matrix q, of which bands [begin, end): rows of
// one product after the other. A panel that is read once and whole is not packed.
template <class T>
void product_panel(const Products<T>& f, Dim q, Dim j, Dim begin, Dim end, T* packed) {
  const Dim bands = (f.m + kProductRows - 1) / kProductRows;
  const Dim columns = std::min(kPanel<T>, f.n - j);
  const bool packs = end - begin > 1 || columns < kPanel<T> || f.b.column != 1;
  if (columns < kPanel<T>) std::fill_n(packed, kPanel<T> * std::min(f.k, kProductDepth), T(0));
  for (Dim first = 0; first == 0 || first < f.k; first += kProductDepth) {
    const Dim depth = std::min(kProductDepth, f.k - first);
    const T* right = f.b.in(q, first, j);
    if (packs) pack_panel(f.b, right, depth, columns, packed);
    for (Dim at = begin; at < end; ++at) {
      const Dim product = at / bands * f.b.count + q, i = at % bands * kProductRows;
      product_rows<T>(std::min<Dim>(kProductRows, f.m - i),
                      {f.a.in(product, i, first), f.a.row, f.a.column, packs ? packed : right,
                       packs ? kPanel<T> : f.b.row, depth, f.c + (product * f.m + i) * f.n + j, f.n,
                       columns, first > 0});
    }
  }
}

// Each thread packs what it needs into a panel of its own.
template <class T>
void blocked_products(const Products<T>& f, int threads, T* workspace) {
  const Dim panels = (f.n + kPanel<T> - 1) / kPanel<T>;
  const Dim bands = (f.m + kProductRows - 1) / kProductRows * (f.products / f.b.count);
  const Dim all = f.b.count * panels * bands;
  parallel_ranges(threads, threads, f.products * f.m * f.n * f.k, [&](Dim first, Dim last) {
    T* packed = workspace + first * kPanel<T> * std::min(f.k, kProductDepth);
    const Dim stop = all * last / threads;
    for (Dim at = all * first / threads; at < stop;) {
      const Dim panel = at / bands, end = std::min(stop, (panel + 1) * bands);
      product_panel(f, panel / panels, panel % panels * kPanel<T>, at - panel * bands,
                    end - panel * bands, packed);
      at = end;
    }
  });
}

// Of two rows of numbers that lie side by side.
template <class T>
T product_sum(const T* a, const T* b, Dim k) {
  constexpr int kSums = 4;
  const Lanes<T> d;
  hn::Vec<Lanes<T>> sum[kSums];
  for (auto& part : sum) part = hn::Zero(d);
  Dim i = 0;
  for (; i + kSums * kLaneCount<T> <= k; i += kSums * kLaneCount<T>)
    for (int s = 0; s < kSums; ++s) {
      const Dim at = i + s * kLaneCount<T>;
      sum[s] = hn::Add(sum[s], hn::Mul(hn::LoadU(d, a + at), hn::LoadU(d, b + at)));
    }
  const auto whole = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  T result = hn::GetLane(hn::SumOfLanes(d, whole));
  for (; i < k; ++i) result += a[i] * b[i];
  return result;
}

template <class T>
void products_of(const IntegerProduct& p, int threads, const void* left, const void* right,
                 void* out, void* workspace) {
  const Dim a_row = p.transpose_a ? 1 : p.k, a_column = p.transpose_a ? p.m : 1;
  const Dim b_row = p.transpose_b ? 1 : p.n, b_column = p.transpose_b ? p.k : 1;
  Products<T> f{{static_cast<const T*>(left), a_row, a_column, p.m * p.k, p.products},
                {static_cast<const T*>(right), b_row, b_column, p.k * p.n, p.inner},
                static_cast<T*>(out),
                p.m,
                p.n,
                p.k,
                p.products};
  if (f.products * f.m * f.n == 0) return;
  // A column of results is a row of them, of the transposes.
  if (f.n == 1) {
    std::swap(f.a, f.b);
    std::swap(f.a.row, f.a.column);
    std::swap(f.b.row, f.b.column);
    std::swap(f.m, f.n);
  }
  if (f.m > 1 || f.b.row != 1) return blocked_products(f, threads, static_cast<T*>(workspace));
  parallel_ranges(threads, f.products * f.n, f.products * f.n * f.k, [&](Dim begin, Dim end) {
    for (Dim at = begin; at < end; ++at)
      f.c[at] = product_sum(f.a.in(at / f.n, 0, 0), f.b.in(at / f.n, 0, at % f.n), f.k);
  });
}

void integer_products(const IntegerProduct& p, int threads, const void* a, const void* b, void* c,
                      void* workspace) {
  if (p.dtype == Dtype::int32)
    products_of<uint32_t>(p, threads, a, b, c, workspace);
  else
    products_of<uint64_t>(p, threads, a, b, c, workspace);
}

// A row of a panel has as many bytes in each dtype.
Bytes integer_panel_bytes(Dim k) {
  return kPanel<uint32_t> * static_cast<Bytes>(sizeof(uint32_t)) * std::min(k, kProductDepth);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(integer_products);
HWY_EXPORT(integer_panel_bytes);

Bytes IntegerProduct::workspace_bytes(int threads) const {
  return HWY_DYNAMIC_DISPATCH(integer_panel_bytes)(k) * threads;
}

void IntegerProduct::run(int threads, const void* a, const void* b, void* c,
                         void* workspace) const {
  HWY_DYNAMIC_DISPATCH(integer_products)(*this, threads, a, b, c, workspace);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE

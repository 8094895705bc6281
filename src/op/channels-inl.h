// Rows of channels on SIMD vectors, for the kernels of batch_norm (op/channels.h). Included by
// `*_simd.cc` files behind simd_math-inl.h, once for each target, hence without `#pragma once`.
// All elements of large tensors, float32 or bfloat16, pass through its `load` and `store`.

// Columns are worked on in blocks of this many vectors: as many sums that do not wait for each
// other.
constexpr int kBlock = 4;

// Calls body.operator()<vectors>(first column, columns of each vector) for blocks that cover
// [0, columns).
template <class Body>
HWY_INLINE void along_columns(Dim columns, const Body& body) {
  Dim c = 0;
  for (; c + kBlock * kWidth <= columns; c += kBlock * kWidth)
    body.template operator()<kBlock>(c, kWidth);
  for (; c + kWidth <= columns; c += kWidth) body.template operator()<1>(c, kWidth);
  if (c < columns) body.template operator()<1>(c, columns - c);
}

// Calls body.operator()<rows>(first row, first column, columns of the vector): a few rows at once,
// so that a channel's parameters are loaded once for all of them.
template <class Body>
HWY_INLINE void along_rows(Dim rows, Dim columns, const Body& body) {
  constexpr int kTogether = 4;
  Dim r = 0;
  for (; r + kTogether <= rows; r += kTogether) {
    Dim c = 0;
    for (; c + kWidth <= columns; c += kWidth) body.template operator()<kTogether>(r, c, kWidth);
    if (c < columns) body.template operator()<kTogether>(r, c, columns - c);
  }
  for (; r < rows; ++r) {
    Dim c = 0;
    for (; c + kWidth <= columns; c += kWidth) body.template operator()<1>(r, c, kWidth);
    if (c < columns) body.template operator()<1>(r, c, columns - c);
  }
}

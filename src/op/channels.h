// How the SIMD kernels of batch_norm see x (..., C): as a matrix of pixels in rows. Few channels,
// or a number that is no multiple of 16, would leave lanes empty: there, `fold` pixels make one row
// of `period` = fold * C columns, and sums of columns that are one channel are joined at the end.
// Everything follows from the shape alone, so that bits do not depend on threads.
#pragma once

#include "op/op.h"

namespace pl::cpu {

struct ChannelForm {
  Dim pixels, channels;
  Dim fold, period;
  Dim rows, tail;          // whole rows, and elements behind the last of them
  Dim chunk_rows, chunks;  // a chunk is 32 KiB, read again while it is in cache
  Dim tasks;               // runs of chunks, each summed in order; shared out to threads
  int threads;

  Dim first_chunk(Dim task) const { return chunks * task / tasks; }
  // For parallel_ranges: a pass over 128 Ki elements takes 10 us, several times what a team costs.
  Dim work() const { return pixels * channels / 8; }
  Bytes row_bytes() const { return period * static_cast<Bytes>(sizeof(float)); }
};

// y = (x - mean) * factor + beta (+ added) (then relu, clipped at `most`) on `columns` of each row.
// Parameters are one row; `added` may be null; a `most` of NaN clips nothing.
template <class T>
struct NormaliseRows {
  const float *mean, *factor, *beta;
  const T *x = nullptr, *added = nullptr;
  T* y = nullptr;
  Dim rows = 0, columns = 0, period;
  bool relu;
  float most;
};

// Where the gradient of batch_norm takes the sign of a relu from.
enum class SignOf : uint8_t { none, x, y };

// Pass 1 of the gradient, of `columns` of each row: sums of g and of g * (x - mean) are added to
// `sum` and `along`. g is dy, where (x - mean) * factor + beta or y is positive and below `most`;
// with y it is also written to `masked`. Pass 2: dx = factor * (g - flat - (x - mean) * slope).
template <class T>
struct GradientRows {
  const float *mean, *factor, *beta = nullptr, *flat, *slope;  // one row each
  const T *x = nullptr, *dy = nullptr, *y = nullptr;
  T *masked = nullptr, *dx = nullptr;
  Dim rows = 0, columns = 0, period;
  float most;
};

ChannelForm channel_form(const PrepareCall& call);

// Where a relu behind the normalisation is clipped (attribute most); NaN: nowhere.
double clip_of(const Attrs& attrs);

// A channel's parameter repeated along a row.
void repeat(const ChannelForm& form, const float* values, float* row);

// gamma / sqrt(variance + epsilon), repeated along a row.
void find_factors(const ChannelForm& form, const float* variance, const float* gamma,
                  double epsilon, float* row);

}  // namespace pl::cpu

// How group_norm's SIMD kernels cut a call, and where they keep what they know of a sample.
#pragma once

#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/group_norm.h"

namespace pl::cpu {

// A sample that is being worked on: sums of its pieces (pieces, 2, width), totals of its columns,
// and numbers for each column.
struct GroupNormSpace {
  double* totals;
  float *columns, *parts;
};

// A sample as rows of `width` columns: one position each, or several where channels are few, so
// that a row is made of whole vectors.
struct GroupNormPlan {
  static constexpr Dim kLanes = 16, kPiece = 8192;  // of any vector; elements of a piece
  static constexpr Dim kLeastRows = 16, kMostRows = 128;

  GroupNormPlan(const GroupNormForm& of, int threads) : form(of) {
    Dim fold = 1;
    while (fold < kLanes && fold * form.channels % kLanes != 0) fold *= 2;
    if (fold * form.channels > 4 * kLanes || form.positions % fold != 0) fold = 1;
    width = form.channels * fold;
    rows = form.positions / fold;
    piece = std::min(rows, std::clamp(kPiece / width, kLeastRows, kMostRows));
    pieces = (rows + piece - 1) / piece;
    by_samples = form.batch >= 4 * threads || form.batch % threads == 0;
    slots = by_samples ? std::min<Dim>(threads, form.batch) : form.batch;
  }
  Dim rows_of(Dim p) const { return std::min(piece, rows - p * piece); }
  Dim at(Dim b, Dim p) const { return (b * rows + p * piece) * width; }
  Dim group(Dim b, Dim column) const {
    return b * form.groups + column % form.channels / form.each;
  }

  Bytes slot_bytes() const {
    const Bytes doubles = width * static_cast<Bytes>(sizeof(double));
    return align_up(doubles + (4 + 2 * pieces) * width * static_cast<Bytes>(sizeof(float)), 64);
  }
  GroupNormSpace space(void* workspace, Dim slot) const {
    char* own = static_cast<char*>(workspace) + slot * slot_bytes();
    double* totals = reinterpret_cast<double*>(own);
    float* columns = reinterpret_cast<float*>(totals + width);
    return {totals, columns, columns + 4 * width};
  }
  float* part(const GroupNormSpace& s, Dim p, int which) const {
    return s.parts + (2 * p + which) * width;
  }

  GroupNormForm form;
  Dim width, rows, piece, pieces;
  bool by_samples;  // threads share out samples, each with a slot of the workspace
  Dim slots;
};

// `before` a sample, `first` for its pieces, `between` for all of it, `last` for its pieces.
// Threads share out samples where there are enough of them, which then stay in a core's cache; else
// pieces.
template <class Before, class First, class Between, class Last>
void in_stages(const GroupNormPlan& plan, int threads, const Before& before, const First& first,
               const Between& between, const Last& last) {
  const Dim batch = plan.form.batch, work = batch * plan.form.positions * plan.form.channels * 2;
  if (plan.by_samples) {
    parallel_ranges(threads, plan.slots, work, [&](Dim begin, Dim end) {
      for (Dim slot = begin; slot < end; ++slot)
        for (Dim b = batch * slot / plan.slots; b < batch * (slot + 1) / plan.slots; ++b) {
          before(b, slot);
          for (Dim p = 0; p < plan.pieces; ++p) first(b, slot, p);
          between(b, slot);
          for (Dim p = 0; p < plan.pieces; ++p) last(b, slot, p);
        }
    });
    return;
  }
  auto each_piece = [&](const auto& body) {
    parallel_ranges(threads, batch * plan.pieces, work, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) body(i / plan.pieces, i / plan.pieces, i % plan.pieces);
    });
  };
  for (Dim b = 0; b < batch; ++b) before(b, b);
  each_piece(first);
  for (Dim b = 0; b < batch; ++b) between(b, b);
  each_piece(last);
}
inline constexpr auto kNoStage = [](auto...) {};

}  // namespace pl::cpu

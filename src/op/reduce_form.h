// How a reduction is worked off on the CPU: which elements meet, in which order, in what pieces.
#pragma once

#include <algorithm>
#include <vector>

#include "op/op.h"

namespace pl::cpu {

enum class Reduction : uint8_t { sum, max, min, prod, norm };

// Some axes of a tensor: where the k-th combination of their indices lies.
struct ReduceAxes {
  std::vector<Dim> sizes, strides;
  Dim count = 1;

  void add_in_front(Dim size, Dim stride) {
    sizes.insert(sizes.begin(), size);
    strides.insert(strides.begin(), stride);
    count *= size;
  }
  Dim offset(Dim k) const {
    Dim offset = 0;
    for (size_t d = sizes.size(); d-- > 0 && k > 0;) {
      const Dim rest = d > 0 ? k / sizes[d] : 0;
      offset += (k - rest * sizes[d]) * strides[d];
      k = rest;
    }
    return offset;
  }
};

// The elements [begin, begin + count) of rows [row, row + rows).
struct ReducePiece {
  Dim row, rows, begin, count;
};

// The innermost axis, `inner` neighbours, is reduced (`runs`: a row of theirs becomes a number) or
// kept (columns, each of them a number). The others: for each index of `kept` the rows at `rows`.
struct ReduceForm {
  static constexpr Dim kRun = 4096;     // elements of a piece along a row, rows of a column's
  static constexpr Dim kColumns = 512;  // columns of a piece at most: long runs of a row are read
                                        // at the speed of memory, short ones are not
  ReduceAxes kept, rows;
  bool runs = true;
  Dim inner = 1;
  Dim columns = 1, blocks = 1;  // columns of a piece; such pieces side by side
  Dim group = 1, in_row = 1;    // rows of a piece; pieces of a row
  Dim pieces = 1;               // of an output

  Dim tasks() const { return kept.count * pieces * blocks; }
  ReducePiece piece(Dim p) const {
    if (in_row > 1) {
      const Dim begin = p % in_row * kRun;
      return {p / in_row, 1, begin, std::min(kRun, inner - begin)};
    }
    return {p * group, std::min(group, rows.count - p * group), 0, inner};
  }
};

// Of a call of one of the reductions; cut so that every thread gets a share.
ReduceForm reduce_form(const PrepareCall& call);

}  // namespace pl::cpu

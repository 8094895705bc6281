// NumPy's broadcasting: shapes are aligned at the right, and a dimension of 1 stretches.
#pragma once

#include <algorithm>
#include <vector>

#include "tensor/shape.h"

namespace pl {

// The common shape of a and b; false when they do not broadcast.
bool broadcast_shapes(const Shape& a, const Shape& b, Shape* out);

// How two operands are read while the output is written in order: rows of `inner` elements, along
// which each operand either steps by one or stays. Dimensions that both cross alike are merged, so
// equal shapes make one long row.
struct BroadcastWalk {
  struct Outer {
    Dim size, a, b;  // a, b: elements to the next index of this dimension, 0 where stretched
  };
  Dim inner = 1;
  bool a_steps = false, b_steps = false;
  std::vector<Outer> outer;

  BroadcastWalk(const Shape& a, const Shape& b, const Shape& out);

  // Where the operands' elements for row `row` of the output begin.
  void offsets(Dim row, Dim* a, Dim* b) const {
    *a = *b = 0;
    for (size_t d = outer.size(); d-- > 0;) {
      const Dim at = d > 0 ? row % outer[d].size : row;
      row /= outer[d].size;
      *a += at * outer[d].a;
      *b += at * outer[d].b;
    }
  }

  // Calls body(a offset, b offset, output offset, count) for the pieces of rows in [begin, end).
  template <class Body>
  void pieces(Dim begin, Dim end, const Body& body) const {
    while (begin < end) {
      const Dim row = begin / inner, column = begin % inner;
      const Dim count = std::min(inner - column, end - begin);
      Dim a, b;
      offsets(row, &a, &b);
      body(a + (a_steps ? column : 0), b + (b_steps ? column : 0), begin, count);
      begin += count;
    }
  }
};

}  // namespace pl

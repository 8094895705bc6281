// Image rows: how ops treat axis 1 of values (B, H, ...). Decides whether one sample may be worked
// off in bands of rows, and how many rows around its own a band must have.
#pragma once

#include <string_view>

#include "op/op.h"
#include "op/window.h"

namespace pl {

struct ImageRule {
  enum Kind : uint8_t {
    mixes,     // rows interact without bounds: the image must stay whole
    maps,      // row i of the outputs depends on row i of the operands
    gathers,   // row o of the outputs depends on the window's rows of the operands (convolution)
    scatters,  // row o of the operands adds to the window's rows of the output (its gradient)
    sums,      // the outputs are sums over rows: bands add up
  };
  Kind kind = mixes;
  // For gathers and scatters. For sums over a window (weight gradients): operand 0 has the rows
  // that the window reads, the others the rows that it is at. kernel = 0: there is none.
  WindowAxis window = {};
  RowMask linear = 0;     // operands, in each of which alone the outputs are linear
  bool additive = false;  // linear in all operands together
  RowMask together = 0;   // linear in these operands together
  bool linear_in(RowMask operands, size_t count) const;
};

// `images`: bit i says that operand i has image rows. Without any, only linearity is answered.
// `terms`: operands of which it will be asked whether the op is linear in them together. Ops that
// are not in the list of image_rows.cc mix.
ImageRule image_rule(std::string_view op, const Metas& in, const Attrs& attrs, RowMask images,
                     RowMask terms = 0);

}  // namespace pl

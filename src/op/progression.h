// progression: numbers with equal steps between them; what arange and linspace are made of. Has no
// operands, as fill.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kProgression;

// Element i is (start + i * step) * factor in float64; of integers, that rounded down.
struct ProgressionForm {
  double start = 0, step = 1, factor = 1;
  bool ends = false;  // the last element is `end`
  double end = 0;
};

ProgressionForm progression_form(const Attrs& attrs);

Tensor progression(Dim count, const ProgressionForm& form, Dtype dtype);

namespace cpu {
std::unique_ptr<Kernel> progression_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

// constrain: the next version of a variable, with no negative element, or with the lengths of its
// vectors moved into a range.
#pragma once

#include <string>
#include <vector>

#include "op/op.h"

namespace pl {

extern const Op kConstrain;

// "non_neg"; or "norm": w * (rate * clip(n, least, most) + (1 - rate) * n) / (1e-7 + n), n the
// length of w's vectors along the axes, which are neighbours.
struct ConstrainOptions {
  std::string kind = "norm";
  double least = 0, most = 1, rate = 1;
  std::vector<int64_t> axes = {0};
};
Tensor constrain(const Tensor& w, const ConstrainOptions& options);

namespace cpu {
std::unique_ptr<Kernel> constrain_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

#include "op/broadcast.h"

namespace pl {
namespace {

// Dimension `axis` of `shape` once it is aligned with a shape of rank `rank`.
Dim aligned(const Shape& shape, int axis, int rank) {
  const int own = axis - (rank - shape.rank());
  return own < 0 ? 1 : shape[own];
}

}  // namespace

bool broadcast_shapes(const Shape& a, const Shape& b, Shape* out) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<Dim> dims;
  for (int axis = 0; axis < rank; ++axis) {
    const Dim left = aligned(a, axis, rank), right = aligned(b, axis, rank);
    if (left != right && left != 1 && right != 1) return false;
    dims.push_back(left == 1 ? right : left);
  }
  *out = Shape(std::move(dims));
  return true;
}

BroadcastWalk::BroadcastWalk(const Shape& a, const Shape& b, const Shape& out) {
  if (out.elements() == 0) return;  // nothing is ever read
  const int rank = out.rank();
  std::vector<Outer> dims;  // innermost first
  Dim a_next = 1, b_next = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (out[axis] == 1) continue;
    const Dim left = aligned(a, axis, rank), right = aligned(b, axis, rank);
    const Outer dim{out[axis], left == 1 ? 0 : a_next, right == 1 ? 0 : b_next};
    a_next *= left;
    b_next *= right;
    if (!dims.empty() && dim.a == dims.back().a * dims.back().size &&
        dim.b == dims.back().b * dims.back().size)
      dims.back().size *= dim.size;
    else
      dims.push_back(dim);
  }
  if (dims.empty()) return;
  inner = dims[0].size;
  a_steps = dims[0].a != 0;
  b_steps = dims[0].b != 0;
  outer.assign(dims.rbegin(), dims.rend() - 1);
}

}  // namespace pl

#include "op/transpose.h"

#include "op/infer.h"

namespace pl {
namespace transpose_op {
namespace {

// Input: x. Attribute: perm.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("transpose", 1, 1, in, attrs);
  const auto& perm = attrs.list("perm");
  const int rank = in[0].shape.rank();
  std::vector<bool> seen(static_cast<size_t>(rank));
  std::vector<Dim> dims;
  bool holds = static_cast<int>(perm.size()) == rank;
  for (size_t i = 0; holds && i < perm.size(); ++i) {
    holds = perm[i] >= 0 && perm[i] < rank && !seen[static_cast<size_t>(perm[i])];
    if (!holds) break;
    seen[static_cast<size_t>(perm[i])] = true;
    dims.push_back(in[0].shape[static_cast<int>(perm[i])]);
  }
  if (!holds) reject("transpose", "a perm that names each dimension once", in, attrs);
  return checked("transpose", {{in[0].dtype, Shape(std::move(dims))}});
}

Tensors gradient(const GradientCall& call) {
  const auto& perm = call.attrs.list("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return {transpose(call.dout[0], std::move(inverse))};
}

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto& perm = attrs.list("perm");
  return !perm.empty() && perm[0] == 0 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, std::vector<int64_t> perm,
                   bool benchmark = false) {
    return Sample{name, {{{Dtype::float32, shape}}}, {{"perm", std::move(perm)}}, 1e-7, benchmark};
  };
  return {sample("matrix", {3, 5}, {1, 0}),
          sample("odd_blocks", {19, 33}, {1, 0}),
          sample("batch", {2, 3, 4}, {0, 2, 1}),
          sample("to_front", {2, 3, 4}, {2, 0, 1}),
          sample("heads", {2, 3, 2, 4}, {0, 2, 1, 3}),
          sample("ones", {1, 5, 1}, {2, 1, 0}),
          sample("pairs", {5, 6, 2}, {1, 0, 2}),
          sample("triples", {4, 5, 3}, {1, 0, 2}),
          sample("runs", {3, 4, 21}, {1, 0, 2}),
          sample("five", {2, 3, 2, 4, 3}, {4, 2, 0, 3, 1}),
          sample("tiles", {3, 37, 70}, {0, 2, 1}),
          sample("as_it_is", {2, 1, 3}, {1, 0, 2}),
          sample("empty", {0, 3}, {1, 0}),
          sample("scalar", {}, {}),
          sample("large", {1024, 784}, {1, 0}, true),
          sample("heads_b16", {16, 128, 12, 64}, {0, 2, 1, 3}, true),
          sample("images_b32", {32, 64, 56, 56}, {0, 2, 3, 1}, true)};
}

constexpr Variant kVariants[] = {{"blocked", DeviceKind::cpu, cpu::transpose_blocked}};

}  // namespace
}  // namespace transpose_op

const Op kTranspose{
    .name = "transpose",
    .summary = "dimensions in another order",
    .infer = transpose_op::infer,
    .gradient = transpose_op::gradient,
    .rows = transpose_op::rows,
    .variants = transpose_op::kVariants,
    .cost = transpose_op::cost,
    .samples = transpose_op::samples,
};

Tensor transpose(const Tensor& x, std::vector<int64_t> perm) {
  if (perm.empty())
    for (int64_t axis = x.shape().rank(); axis-- > 0;) perm.push_back(axis);
  for (int64_t& axis : perm)
    if (axis < 0) axis += x.shape().rank();
  bool moves = !x.defined() || static_cast<int>(perm.size()) != x.shape().rank();
  for (size_t i = 0; i < perm.size(); ++i) moves = moves || perm[i] != static_cast<int64_t>(i);
  if (!moves) return x;
  return apply(kTranspose, {x}, {{"perm", std::move(perm)}})[0];
}

}  // namespace pl

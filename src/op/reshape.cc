#include "op/reshape.h"

#include "base/error.h"
#include "op/infer.h"
#include "op/recorder.h"

namespace pl {
namespace reshape_op {
namespace {

// What the dimensions behind the first leave of x's elements.
Dim front(const Shape& x, const std::vector<Dim>& dims) {
  Dim rest = 1;
  for (size_t i = 1; i < dims.size(); ++i) {
    const auto product = dims[i] > 0 ? checked_mul(rest, dims[i]) : std::nullopt;
    if (!product) return x[0];
    rest = *product;
  }
  return x.elements() / rest;
}

// Input: x. Attributes: `stop`, 1 where no gradient goes back; `shape`, in which -1 in front stands
// for what the other dimensions leave of x's elements, so that the node holds for any number of
// samples.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("reshape", 1, 1, in, attrs);
  std::vector<Dim> dims = attrs.list("shape");
  if (!dims.empty() && dims[0] == -1 && in[0].shape.rank() > 0) dims[0] = front(in[0].shape, dims);
  for (Dim dim : dims)
    if (dim < 0) reject("reshape", "dimensions that are not negative", in, attrs);
  Metas out = checked("reshape", {{in[0].dtype, Shape(std::move(dims))}, in[0]});
  if (out[0].elements() != out[1].elements())
    reject("reshape", "a shape of as many elements", in, attrs);
  out.pop_back();
  return out;
}

Tensors gradient(const GradientCall& call) {
  if (call.attrs.integer("stop", 0)) return Tensors(1);
  return {reshape(call.dout[0], call.in[0].shape().dims())};
}

// One of them is a multiple of the other.
bool whole(Dim a, Dim b) { return a > 0 && b > 0 && (a % b == 0 || b % a == 0); }

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto& shape = attrs.list("shape");
  return !shape.empty() && shape[0] == -1 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas&, const Metas&, const Attrs&) { return {}; }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape from, std::vector<int64_t> to) {
    return Sample{name, {{{Dtype::float32, from}}}, {{"shape", std::move(to)}}, 1e-7};
  };
  return {sample("flatten", {2, 3, 4}, {-1, 12}), sample("split", {6, 2}, {2, 3, 2}),
          sample("scalar", {1, 1}, {}), sample("from_scalar", {}, {1}),
          sample("empty", {0, 4}, {-1, 2, 2})};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::reshape_reference},
};
constexpr InOut kAlias[] = {{0, 0}};

}  // namespace
}  // namespace reshape_op

const Op kReshape{
    .name = "reshape",
    .summary = "the same elements in another shape; no copy",
    .infer = reshape_op::infer,
    .gradient = reshape_op::gradient,
    .alias = reshape_op::kAlias,
    .rows = reshape_op::rows,
    .variants = reshape_op::kVariants,
    .cost = reshape_op::cost,
    .samples = reshape_op::samples,
};

Tensor reshape(const Tensor& x, std::vector<Dim> shape) {
  if (!x.defined()) return apply(kReshape, {x})[0];  // throws
  auto bad = [&](const std::string& expected) {
    return UserError("[reshape] expected " + expected + ", received " + x.meta().text() + " to " +
                     Shape(shape).text());
  };
  Dim known = 1;
  int free = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && free >= 0) throw bad("at most one -1");
    if (shape[i] == -1) {
      free = static_cast<int>(i);
      continue;
    }
    const auto product = shape[i] < 0 ? std::nullopt : checked_mul(known, shape[i]);
    if (!product) throw bad("dimensions that can be multiplied");
    known = *product;
  }
  const Dim total = x.meta().elements();
  if (free >= 0) {
    if (known == 0 || total % known != 0) throw bad("a size that the other dimensions divide");
    shape[static_cast<size_t>(free)] = total / known;
  } else if (known != total) {
    throw bad("a shape of " + std::to_string(total) + " elements");
  }
  if (Shape(shape) == x.shape()) return x;
  // Samples lie one after another, so they may share dimension 0 with others (B, T, D) -> (B * T,
  // D) and part from them again. Where there are no elements, -1 stands for x's own dimension 0.
  if (!shape.empty() && x.shape().rank() > 0 &&
      (shape[0] == x.shape()[0] ||
       (total > 0 && carries_rows(x) && reshape_op::whole(shape[0], x.shape()[0]))))
    shape[0] = -1;
  return apply(kReshape, {x}, {{"shape", std::move(shape)}})[0];
}

Tensor stop_gradient(const Tensor& x) {
  std::vector<Dim> shape = x.shape().dims();
  if (!shape.empty()) shape[0] = -1;
  return apply(kReshape, {x}, {{"shape", std::move(shape)}, {"stop", int64_t{1}}})[0];
}

}  // namespace pl

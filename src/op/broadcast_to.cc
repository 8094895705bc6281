#include "op/broadcast_to.h"

#include "op/broadcast.h"
#include "op/infer.h"
#include "op/recorder.h"
#include "op/reduce.h"

namespace pl {
namespace broadcast_to_op {
namespace {

// Input: x. Attributes: shape, where -1 in front stands for x's dimension 0, so that the node holds
// for any number of samples; rows, 1 when shape[0] counts samples that x does not carry.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("broadcast_to", 1, 1, in, attrs);
  std::vector<Dim> dims = attrs.list("shape");
  if (!dims.empty() && dims[0] == -1 && in[0].shape.rank() == static_cast<int>(dims.size()))
    dims[0] = in[0].shape[0];
  const Shape shape(std::move(dims));
  Shape common;
  if (!broadcast_shapes(in[0].shape, shape, &common) || common != shape)
    reject("broadcast_to", "an operand that broadcasts to the shape", in, attrs);
  return checked("broadcast_to", {{in[0].dtype, shape}});
}

Tensors gradient(const GradientCall& call) { return {sum_to(call.dout[0], call.in[0].shape())}; }

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return attrs.integer("rows", 0) ? Rows::maps : Rows::none;
  const auto& shape = attrs.list("shape");
  return !shape.empty() && shape[0] == -1 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape from, std::vector<int64_t> to) {
    return Sample{name, {{{Dtype::float32, from}}}, {{"shape", std::move(to)}}, 1e-7};
  };
  return {sample("scalar", {}, {3, 5}),      sample("bias", {3}, {4, 3}),
          sample("column", {4, 1}, {-1, 3}), sample("middle", {2, 1, 3}, {2, 4, 3}),
          sample("row", {1, 3}, {5, 3}),     sample("both", {3, 1}, {2, 3, 4}),
          sample("same", {2, 3}, {-1, 3}),   sample("empty", {1, 3}, {0, 3})};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::broadcast_to_reference},
};

}  // namespace
}  // namespace broadcast_to_op

const Op kBroadcastTo{
    .name = "broadcast_to",
    .summary = "repeated along dimensions of 1 and new leading ones",
    .infer = broadcast_to_op::infer,
    .gradient = broadcast_to_op::gradient,
    .rows = broadcast_to_op::rows,
    .variants = broadcast_to_op::kVariants,
    .cost = broadcast_to_op::cost,
    .samples = broadcast_to_op::samples,
};

Tensor broadcast_to(const Tensor& x, const Shape& shape, bool rows) {
  if (x.defined() && x.shape() == shape && (carries_rows(x) || !rows)) return x;
  std::vector<Dim> dims = shape.dims();
  Attrs attrs;
  if (rows && !carries_rows(x))
    attrs.set("rows", int64_t{1});
  else if (!dims.empty() && x.shape().rank() == shape.rank() && x.shape()[0] == dims[0])
    dims[0] = -1;
  attrs.set("shape", std::move(dims));
  return apply(kBroadcastTo, {x}, std::move(attrs))[0];
}

}  // namespace pl

#include "op/argsort.h"

#include <cmath>

#include "op/infer.h"

namespace pl {
namespace argsort_op {
namespace {

// Input: x (..., n). Attributes: count, descending.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("argsort", 1, 1, in, attrs);
  if (in[0].shape.rank() < 1) reject("argsort", "x (..., n)", in, attrs);
  const int64_t count = attrs.integer("count");
  if (count < 0 || count > in[0].shape.back() || in[0].shape.back() > INT32_MAX)
    reject("argsort", "a count of at most x's last dimension", in, attrs);
  std::vector<Dim> dims = in[0].shape.dims();
  dims.back() = count;
  return checked("argsort", {{Dtype::int32, Shape(std::move(dims))}});
}

Rows rows(const Attrs&, RowMask in) { return in ? Rows::maps : Rows::none; }

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  const double n = in[0].shape.rank() > 0 ? static_cast<double>(in[0].shape.back()) : 1;
  return pointwise_cost(in, out, 4 * std::log2(n + 1));
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, int64_t count, int64_t descending,
                   Dtype dtype = Dtype::float32) {
    return Sample{name, {{{dtype, shape}}}, {{"count", count}, {"descending", descending}}, 0};
  };
  return {sample("up", {3, 11}, 11, 0),
          sample("down", {2, 3, 9}, 9, 1),
          sample("first", {4, 70}, 5, 1),
          sample("one", {3, 1}, 1, 0),
          sample("empty", {0, 3}, 3, 0),
          sample("long", {3, 300}, 300, 0),
          sample("most", {2, 300}, 200, 1),
          sample("integers", {3, 50}, 50, 1, Dtype::int64),
          sample("bytes", {2, 50}, 5, 0, Dtype::uint8)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::argsort_reference}};

}  // namespace
}  // namespace argsort_op

const Op kArgsort{
    .name = "argsort",
    .summary = "places of the last axis's elements in order",
    .infer = argsort_op::infer,
    .rows = argsort_op::rows,
    .variants = argsort_op::kVariants,
    .cost = argsort_op::cost,
    .samples = argsort_op::samples,
};

Tensor argsort(const Tensor& x, Dim count, bool descending) {
  return apply(kArgsort, {x}, {{"count", count}, {"descending", int64_t{descending}}})[0];
}

}  // namespace pl

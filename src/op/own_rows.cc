#include "op/own_rows.h"

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace own_rows_op {
namespace {

// Inputs: x (B, H, ...), a band of each image; step_params, which say which band it is. Attributes:
// height, rows of the whole image; starts, the image row that is row 0 of each band; own, the rows
// [own[b], own[b + 1]) that band b answers for. Without attributes there is one band: all rows.
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "own_rows";
  expect_operands(op, 2, 2, in, attrs);
  const Shape& x = in[0].shape;
  if (!is_real(in[0].dtype) || x.rank() < 2)
    reject(op, "images (B, H, ...) of float32 or float64", in, attrs);
  if (in[1] != step_params_meta())
    reject(op, "step parameters " + step_params_meta().text() + " second", in, attrs);
  if (attrs.has("starts")) {
    const auto &starts = attrs.list("starts"), &own = attrs.list("own");
    bool fits = own.size() == starts.size() + 1;
    for (size_t b = 0; fits && b < starts.size(); ++b)
      fits = starts[b] <= own[b] && own[b] <= own[b + 1] && own[b + 1] <= starts[b] + x[1];
    if (!fits) reject(op, "own rows that lie in their band", in, attrs);
  }
  return checked(op, {in[0]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, Attrs attrs) {
    return Sample{name,
                  {{{Dtype::float32, std::move(shape)}}, {step_params_meta(), Fill::step_params}},
                  std::move(attrs),
                  0};
  };
  auto bands = [](std::vector<int64_t> starts, std::vector<int64_t> own) {
    const int64_t height = own.back();
    return Attrs{{"height", height}, {"starts", std::move(starts)}, {"own", std::move(own)}};
  };
  return {sample("all", {2, 5, 3}, {}), sample("top", {1, 5, 3}, bands({0, 4}, {0, 4, 9})),
          sample("inner", {1, 6, 7, 2}, bands({1, 4, 6}, {2, 5, 9, 12})),
          sample("none", {2, 3}, bands({2, 3}, {3, 3, 6}))};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::own_rows_reference}};
constexpr InOut kInPlace[] = {{0, 0}};

}  // namespace
}  // namespace own_rows_op

const Op kOwnRows{
    .name = "own_rows",
    .summary = "a band of an image with all rows but its own zeroed",
    .infer = own_rows_op::infer,
    .in_place = own_rows_op::kInPlace,
    .rows = rows_map,
    .variants = own_rows_op::kVariants,
    .cost = own_rows_op::cost,
    .samples = own_rows_op::samples,
};

}  // namespace pl

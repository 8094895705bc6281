#include "op/place_rows.h"

#include <algorithm>

#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace place_rows_op {
namespace {

// Inputs: images (B, H, ...), of which some rows are there already; a band (1, h, ...) of one of
// them; step_params, which say which band of which sample it is. Attributes: starts, own and height
// as for own_rows. Output: the images with the band's own rows, their next version.
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "place_rows";
  expect_operands(op, 3, 3, in, attrs);
  const Meta &whole = in[0], &band = in[1];
  bool fits = whole.dtype == band.dtype && whole.shape.rank() >= 2 &&
              band.shape.rank() == whole.shape.rank() && band.shape[0] == 1 && whole.shape[0] >= 1;
  for (int axis = 2; fits && axis < whole.shape.rank(); ++axis)
    fits = band.shape[axis] == whole.shape[axis];
  if (!fits) reject(op, "images (B, H, ...) and a band (1, h, ...) of one dtype", in, attrs);
  if (in[2] != step_params_meta())
    reject(op, "step parameters " + step_params_meta().text() + " third", in, attrs);
  const auto &starts = attrs.list("starts"), &own = attrs.list("own");
  fits = own.size() == starts.size() + 1 && attrs.integer("height") == whole.shape[1];
  for (size_t b = 0; fits && b < starts.size(); ++b)
    fits = 0 <= starts[b] && starts[b] <= own[b] && own[b] <= own[b + 1] &&
           own[b + 1] <= std::min(starts[b] + band.shape[1], whole.shape[1]);
  if (!fits) reject(op, "own rows that lie in their band and in the image", in, attrs);
  return checked(op, {whole});
}

Cost cost(const Metas& in, const Metas&, const Attrs&) {
  return {0, 2 * static_cast<double>(in[1].bytes())};
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape whole, Shape band, std::vector<int64_t> starts,
                   std::vector<int64_t> own) {
    const int64_t height = whole[1];
    return Sample{name,
                  {{{Dtype::float32, std::move(whole)}},
                   {{Dtype::float32, std::move(band)}},
                   {step_params_meta(), Fill::step_params}},
                  {{"height", height}, {"starts", std::move(starts)}, {"own", std::move(own)}},
                  0};
  };
  // The step parameters of samples begin with sample 2.
  return {sample("top", {3, 9, 2}, {1, 5, 2}, {0, 4}, {0, 4, 9}),
          sample("inner", {4, 12, 3, 2}, {1, 6, 3, 2}, {1, 6}, {2, 6, 12})};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::place_rows_reference}};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace
}  // namespace place_rows_op

const Op kPlaceRows{
    .name = "place_rows",
    .summary = "a band's own rows in their place in the whole image",
    .infer = place_rows_op::infer,
    .next_version = place_rows_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = place_rows_op::kVariants,
    .cost = place_rows_op::cost,
    .samples = place_rows_op::samples,
};

}  // namespace pl

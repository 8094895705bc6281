#include "op/constrain.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace constrain_op {
namespace {

// Input: w. Output: its next version. Attributes: kind; of "norm" also axes, least, most, rate.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("constrain", in, attrs);
  const std::string& kind = attrs.text("kind");
  if (kind == "non_neg") return checked("constrain", {in[0]});
  if (kind != "norm") reject("constrain", "kind non_neg or norm", in, attrs);
  const int64_t rank = in[0].shape.rank();
  std::vector<int64_t> axes = attrs.list("axes");
  bool good = !axes.empty();
  for (int64_t& axis : axes) {
    good = good && axis >= -rank && axis < rank;
    axis += axis < 0 ? rank : 0;
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 1; i < axes.size(); ++i) good = good && axes[i] == axes[i - 1] + 1;
  if (!good) reject("constrain", "axes of the operand that are neighbours", in, attrs);
  const double least = attrs.real("least", 0), most = attrs.real("most", 1);
  const double rate = attrs.real("rate", 1);
  if (!(least >= 0 && least <= most && rate >= 0 && rate <= 1))
    reject("constrain", "0 <= least <= most and a rate from 0 to 1", in, attrs);
  return checked("constrain", {in[0]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 4); }

std::vector<Sample> samples() {
  auto norm = [](const char* name, Shape shape, std::vector<int64_t> axes, double least,
                 double most, double rate, bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, shape}}},
                  {{"kind", std::string("norm")},
                   {"axes", std::move(axes)},
                   {"least", least},
                   {"most", most},
                   {"rate", rate}},
                  1e-6,
                  benchmark};
  };
  return {Sample{"non_neg", {{{Dtype::float32, {5, 7}}}}, {{"kind", std::string("non_neg")}}, 1e-6},
          norm("columns", {5, 131}, {0}, 0, 1.5, 1),
          norm("rows", {5, 131}, {1}, 0, 2, 1),
          norm("filters", {3, 3, 2, 5}, {0, 1, 2}, 1, 1, 1),
          norm("middle", {2, 3, 4, 5}, {-3, 2}, 0.5, 2, 0.3),
          norm("vector", {7}, {0}, 3, 4, 1),
          norm("empty", {0, 3}, {0}, 0, 1, 1),
          norm("dense", {784, 512}, {0}, 0, 2, 1, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::constrain_reference}};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace
}  // namespace constrain_op

const Op kConstrain{
    .name = "constrain",
    .summary = "a variable without negative elements, or with vectors of bounded length",
    .infer = constrain_op::infer,
    .next_version = constrain_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = constrain_op::kVariants,
    .cost = constrain_op::cost,
    .samples = constrain_op::samples,
};

Tensor constrain(const Tensor& w, const ConstrainOptions& options) {
  Attrs attrs{{"kind", options.kind}};
  if (options.kind == "norm") {
    attrs.set("axes", options.axes);
    attrs.set("least", options.least);
    attrs.set("most", options.most);
    attrs.set("rate", options.rate);
  }
  return apply(kConstrain, {w}, std::move(attrs))[0];
}

}  // namespace pl

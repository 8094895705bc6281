#include "op/layer_norm_gradients.h"

#include <algorithm>

#include "op/accumulate.h"
#include "op/infer.h"
#include "op/layer_norm.h"
#include "op/pointwise.h"
#include "op/reduce.h"

namespace pl {
namespace layer_norm_gradients_op {
namespace {

constexpr const char* kName = "layer_norm_gradients";

// Inputs: x, gamma, mean, rstd, dy, [added]. Outputs: dx, dgamma, dbeta, and with attribute sum = 1
// the sum of dx over all rows: the gradient of a bias that x was made with.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands(kName, 5, 6, in, attrs);
  const Metas dx = kLayerNormGradient.infer({in[0], in[1], in[2], in[3], in[4]}, attrs);
  if (in.size() > 5 && in[5] != in[0]) reject(kName, "what is added to look like x", in, attrs);
  const Metas sums = kLayerNormParameterGradient.infer({in[0], in[2], in[3], in[4]}, attrs);
  Metas out{dx[0], sums[0], sums[1]};
  if (attrs.integer("sum", 0)) out.push_back(sums[1]);
  return out;
}

RowMask wide_operands(const Attrs&, size_t) { return 0b1110; }

// gamma belongs to all samples.
Rows rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }
Rows rows_of(const Attrs&, RowMask in, int out) {
  if (!in) return Rows::none;
  if (in != 0b11101 && in != 0b111101) return Rows::mixes;
  return out == 0 ? Rows::maps : Rows::sums;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 8); }

std::vector<Sample> samples() {
  std::vector<Sample> list = kLayerNormGradient.samples();
  std::erase_if(list, [](const Sample& sample) { return sample.benchmark; });
  const size_t count = list.size();
  for (size_t i = 0; i < count; ++i) {
    Sample sample = list[i];
    sample.name += "_added";
    sample.in.push_back({sample.in[0].meta});
    list.push_back(std::move(sample));
  }
  for (Dim width : {768, 1024, 1600}) {
    const Meta x{Dtype::float32, Shape{37, width}}, moment{Dtype::float32, Shape{37}};
    Sample sample{
        "width_" + std::to_string(width),
        {{x}, {{Dtype::float32, Shape{width}}}, {moment}, {moment, Fill::positive}, {x}, {x}},
        {},
        2e-6};
    list.push_back(sample);
    sample.name += "_sum";
    sample.attrs.set("sum", int64_t{1});
    list.push_back(std::move(sample));
  }
  return list;
}

// Of reduce_sum over all axes but the last.
Attrs leading_sum_attrs(const Meta& x, Dtype dtype) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis + 1 < x.shape.rank(); ++axis) axes.push_back(axis);
  Attrs attrs{{"axes", std::move(axes)}};
  if (dtype != x.dtype) attrs.set("dtype", std::string(name_of(dtype)));
  return attrs;
}

struct Parts {
  std::unique_ptr<Kernel> sums, input, add = nullptr, total = nullptr;
};

// The kernels of its parts, one behind the other. dx may lie on x, dy or what is added: the sums
// are made first, and dx in workspace.
class InParts final : public Kernel {
 public:
  InParts(const PrepareCall& call, Parts parts) : parts_(std::move(parts)) {
    if (parts_.add) inner_at_ = align_up(call.out[0].bytes(), call.backend.alignment());
    footprint = static_cast<Bytes>(sizeof *this);
    Bytes inner = 0;
    for (const auto* part : {&parts_.sums, &parts_.input, &parts_.add, &parts_.total}) {
      if (!*part) continue;
      inner = std::max(inner, (*part)->workspace_bytes);
      key += (*part)->key;
      footprint += (*part)->footprint;
    }
    workspace_bytes = inner_at_ + inner;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    void* const operands[] = {in[0], in[2], in[3], in[4]};
    void* const results[] = {out[1], out[2]};
    parts_.sums->run(operands, results, space + inner_at_);
    void* const dx[] = {parts_.add ? space : out[0]};
    parts_.input->run(in, dx, space + inner_at_);
    void* const terms[] = {dx[0], parts_.add ? in[5] : nullptr};
    if (parts_.add) parts_.add->run(terms, out, space + inner_at_);
    if (parts_.total) parts_.total->run(out, out + 3, space + inner_at_);
  }

 private:
  Parts parts_;
  Bytes inner_at_ = 0;
};

// Narrow types are widened as a whole, lest dx be rounded before something is added to it.
std::unique_ptr<Kernel> composed(const PrepareCall& call) {
  const bool whole = call.in[0].dtype == Dtype::float32 || call.in[0].dtype == Dtype::float64;
  return whole ? layer_norm_gradients_in_parts(call) : nullptr;
}

constexpr Variant kVariants[] = {{"composed", DeviceKind::cpu, composed}};
constexpr InOut kInPlace[] = {{4, 0}, {5, 0}, {0, 0}};

constexpr AddingOp kAdding{"layer_norm_gradients_accumulate", kLayerNormGradients, 1, 3};
Metas accumulate_infer(const Metas& in, const Attrs& attrs) { return kAdding.infer(in, attrs); }
Cost accumulate_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return kAdding.cost(in, out, attrs);
}
std::vector<Sample> accumulate_samples() { return kAdding.samples(); }
RowMask accumulate_wide_operands(const Attrs&, size_t) { return 0b1110111; }
constexpr Variant kAccumulateVariants[] = {
    {"composed", DeviceKind::cpu, layer_norm_gradients_accumulate_composed}};
constexpr InOut kAccumulateInPlace[] = {{7, 0}, {8, 0}, {3, 0}};
constexpr InOut kNextVersion[] = {{0, 1}, {1, 2}, {2, 3}};

}  // namespace
}  // namespace layer_norm_gradients_op

const Op kLayerNormGradients{
    .name = layer_norm_gradients_op::kName,
    .summary = "all gradients of layer_norm, and what else reaches its input",
    .infer = layer_norm_gradients_op::infer,
    .in_place = layer_norm_gradients_op::kInPlace,
    .rows = layer_norm_gradients_op::rows,
    .rows_of = layer_norm_gradients_op::rows_of,
    .wide_operands = layer_norm_gradients_op::wide_operands,
    .variants = layer_norm_gradients_op::kVariants,
    .cost = layer_norm_gradients_op::cost,
    .samples = layer_norm_gradients_op::samples,
};

const Op kLayerNormGradientsAccumulate{
    .name = layer_norm_gradients_op::kAdding.name,
    .summary = "layer_norm_gradients whose sums over rows are added to running sums",
    .infer = layer_norm_gradients_op::accumulate_infer,
    .in_place = layer_norm_gradients_op::kAccumulateInPlace,
    .next_version = layer_norm_gradients_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .wide_operands = layer_norm_gradients_op::accumulate_wide_operands,
    .variants = layer_norm_gradients_op::kAccumulateVariants,
    .cost = layer_norm_gradients_op::accumulate_cost,
    .samples = layer_norm_gradients_op::accumulate_samples,
};

std::unique_ptr<Kernel> layer_norm_gradients_accumulate_composed(const PrepareCall& call) {
  return layer_norm_gradients_op::kAdding.composed(call);
}

std::unique_ptr<Kernel> layer_norm_gradients_in_parts(const PrepareCall& call) {
  const Metas of_sums{call.in[0], call.in[2], call.in[3], call.in[4]};
  const Metas sums{call.out[1], call.out[2]}, input{call.out[0]}, terms{call.out[0], call.out[0]};
  const Metas of_input(call.in.begin(), call.in.begin() + 5);
  layer_norm_gradients_op::Parts parts{
      .sums = prepare(kLayerNormParameterGradient, {call.backend, of_sums, sums, call.attrs}),
      .input = prepare(kLayerNormGradient, {call.backend, of_input, input, call.attrs})};
  if (call.in.size() > 5) parts.add = prepare(kAdd, {call.backend, terms, input, Attrs()});
  if (call.out.size() > 3) {
    const Metas total{call.out[3]};
    const Attrs attrs = layer_norm_gradients_op::leading_sum_attrs(call.out[0], total[0].dtype);
    parts.total = prepare(kReduceSum, {call.backend, input, total, attrs});
  }
  return std::make_unique<layer_norm_gradients_op::InParts>(call, std::move(parts));
}

LayerNormGradients layer_norm_gradients(const Tensor& x, const Tensor& gamma, const Tensor& mean,
                                        const Tensor& rstd, const Tensor& dy, const Tensor& added) {
  Tensors in{x, gamma, mean, rstd, dy};
  if (added.defined()) in.push_back(added);
  const Tensors out = apply(kLayerNormGradients, std::move(in));
  return {out[0], out[1], out[2]};
}

}  // namespace pl

#include "op/softmax_cross_entropy.h"

#include "op/infer.h"
#include "op/one_hot.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/reshape.h"
#include "op/softmax.h"

namespace pl {
namespace softmax_cross_entropy_op {
namespace {

void expect_rows(const char* op, const Metas& in, const Attrs& attrs) {
  const Meta& logits = in[0];
  if (logits.shape.rank() < 2 || !is_real(logits.dtype) || logits.shape.back() < 1)
    reject(op, "float32 or float64 rows (B, ..., C) with at least one class", in, attrs);
  checked(op, {logits});
}

// (B, ...) of logits (B, ..., C).
Shape without_classes(const Shape& shape) {
  return Shape(std::vector<Dim>(shape.begin(), shape.end() - 1));
}

void expect_labels(const char* op, const Metas& in, const Attrs& attrs) {
  if (in[1] != Meta{Dtype::int32, without_classes(in[0].shape)})
    reject(op, "labels int32 (B, ...)", in, attrs);
}

void expect_targets(const char* op, const Metas& in, const Attrs& attrs) {
  if (in[1] != in[0]) reject(op, "targets of the first operand's dtype and shape", in, attrs);
}

void expect_dloss(const char* op, const Metas& in, const Attrs& attrs) {
  if (in[2] != Meta{in[0].dtype, without_classes(in[0].shape)})
    reject(op, "dloss (B, ...) of the probabilities' dtype", in, attrs);
}

Metas loss_and_probs(const Metas& in) {
  return {{in[0].dtype, without_classes(in[0].shape)}, in[0]};
}

// Inputs: logits (B, ..., C), labels int32 (B, ...). Outputs: loss (B, ...), probs (B, ..., C).
Metas sparse_infer(const Metas& in, const Attrs& attrs) {
  const char* op = "sparse_softmax_cross_entropy";
  expect_operands(op, 2, 2, in, attrs);
  expect_rows(op, in, attrs);
  expect_labels(op, in, attrs);
  return loss_and_probs(in);
}

// Inputs: logits and targets (B, ..., C). Outputs: loss (B, ...), probs (B, ..., C).
Metas infer(const Metas& in, const Attrs& attrs) {
  const char* op = "softmax_cross_entropy";
  expect_operands(op, 2, 2, in, attrs);
  expect_rows(op, in, attrs);
  expect_targets(op, in, attrs);
  return loss_and_probs(in);
}

// Inputs: probs (B, ..., C), labels int32 (B, ...), dloss (B, ...). Output: dlogits (B, ..., C).
Metas sparse_gradient_infer(const Metas& in, const Attrs& attrs) {
  const char* op = "sparse_softmax_cross_entropy_gradient";
  expect_operands(op, 3, 3, in, attrs);
  expect_rows(op, in, attrs);
  expect_labels(op, in, attrs);
  expect_dloss(op, in, attrs);
  return {in[0]};
}

// Inputs: probs and targets (B, ..., C), dloss (B, ...). Output: dlogits (B, ..., C).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const char* op = "softmax_cross_entropy_gradient";
  expect_operands(op, 3, 3, in, attrs);
  expect_rows(op, in, attrs);
  expect_targets(op, in, attrs);
  expect_dloss(op, in, attrs);
  return {in[0]};
}

// Inputs: probs, labels or targets; dloss and dprobs, either of which may be undefined.
Tensor combine(const GradientCall& call,
               Tensor (*of_loss)(const Tensor&, const Tensor&, const Tensor&)) {
  const Tensor &probs = call.out[1], &dloss = call.dout[0], &dprobs = call.dout[1];
  if (!call.wants(0)) return {};
  if (!dprobs.defined()) return of_loss(probs, call.in[1], dloss);
  const Tensor through = softmax_gradient(probs, dprobs);
  return dloss.defined() ? add(of_loss(probs, call.in[1], dloss), through) : through;
}

Tensors sparse_gradient(const GradientCall& call) {
  return {combine(call, sparse_softmax_cross_entropy_gradient), Tensor()};
}

Tensors gradient(const GradientCall& call) {
  return {combine(call, softmax_cross_entropy_gradient), Tensor()};
}

// (B, ...) as (B, ..., 1).
Tensor as_column(const Tensor& rows) {
  std::vector<Dim> dims = rows.shape().dims();
  dims.push_back(1);
  return reshape(rows, dims);
}

// dlogits = (p - y) * dloss with y = one_hot(labels). For a cotangent g of dlogits:
//   to p: g * dloss;   to dloss: sum(g * (p - y)).
Tensors sparse_gradient_gradient(const GradientCall& call) {
  const Tensor &p = call.in[0], &labels = call.in[1], &dloss = call.in[2], &g = call.dout[0];
  Tensors out(3);
  if (call.wants(0)) out[0] = multiply(g, as_column(dloss));
  if (call.wants(2)) {
    const Tensor y = one_hot(labels, p.shape().back(), p.dtype());
    out[2] = reduce_sum(multiply(g, subtract(p, y)), {-1});
  }
  return out;
}

// dlogits = (p * s - y) * dloss with s = sum(y). For a cotangent g of dlogits:
//   to p: g * dloss * s;   to y: (sum(g * p) - g) * dloss;   to dloss: sum(g * (p * s - y)).
Tensors gradient_gradient(const GradientCall& call) {
  const Tensor &p = call.in[0], &y = call.in[1], &dloss = call.in[2], &g = call.dout[0];
  const Tensor s = reduce_sum(y, {-1}, true);
  Tensors out(3);
  if (call.wants(0)) out[0] = multiply(multiply(g, as_column(dloss)), s);
  if (call.wants(1))
    out[1] = multiply(subtract(reduce_sum(multiply(g, p), {-1}, true), g), as_column(dloss));
  if (call.wants(2)) out[2] = reduce_sum(multiply(g, subtract(multiply(p, s), y)), {-1});
  return out;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 8); }
Cost gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out, 2);
}

struct Size {
  const char* name;
  Shape rows;
  Dim classes;
  bool benchmark = false;
};
std::vector<Size> sizes() {
  return {
      {"digits", {7}, 10},
      {"one_row", {1}, 3},
      {"one_class", {4}, 1},
      {"many_classes", {3}, 1031},
      {"no_rows", {0}, 10},
      {"sequence", {2, 3}, 11},
      {"mnist_b256", {256}, 10, true},
      {"words_b256", {256}, 50257, true},
  };
}

// `sparse`: labels rather than distributions. `backward`: the samples of the gradient op.
std::vector<Sample> samples_of(bool sparse, bool backward) {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    std::vector<Dim> dims = size.rows.dims();
    dims.push_back(size.classes);
    const Meta matrix{Dtype::float32, Shape(std::move(dims))};
    Sample sample{size.name, {}, {}, 1e-5, size.benchmark};
    sample.in.push_back({matrix, backward ? Fill::probabilities : Fill::normal});
    if (sparse)
      sample.in.push_back({{Dtype::int32, size.rows}, Fill::labels});
    else
      sample.in.push_back({matrix, Fill::probabilities});
    if (backward) sample.in.push_back({{Dtype::float32, size.rows}});
    out.push_back(std::move(sample));
  }
  return out;
}
std::vector<Sample> sparse_samples() { return samples_of(true, false); }
std::vector<Sample> sparse_gradient_samples() { return samples_of(true, true); }
std::vector<Sample> samples() { return samples_of(false, false); }
std::vector<Sample> gradient_samples() { return samples_of(false, true); }

constexpr Variant kSparseVariants[] = {
    {"simd", DeviceKind::cpu, cpu::sparse_softmax_cross_entropy_simd},
    {"reference", DeviceKind::cpu, cpu::sparse_softmax_cross_entropy_reference}};
constexpr Variant kSparseGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::sparse_softmax_cross_entropy_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::sparse_softmax_cross_entropy_gradient_reference}};
constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::softmax_cross_entropy_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::softmax_cross_entropy_gradient_reference}};

constexpr InOut kInPlace[] = {{0, 1}};          // probs take the logits' place
constexpr InOut kGradientInPlace[] = {{0, 0}};  // dlogits take the probs' place

}  // namespace
}  // namespace softmax_cross_entropy_op

const Op kSparseSoftmaxCrossEntropy{
    .name = "sparse_softmax_cross_entropy",
    .summary = "cross-entropy of integer labels under softmax(logits), and the softmax",
    .infer = softmax_cross_entropy_op::sparse_infer,
    .gradient = softmax_cross_entropy_op::sparse_gradient,
    .in_place = softmax_cross_entropy_op::kInPlace,
    .rows = rows_map,
    .variants = softmax_cross_entropy_op::kSparseVariants,
    .cost = softmax_cross_entropy_op::cost,
    .samples = softmax_cross_entropy_op::sparse_samples,
};

const Op kSparseSoftmaxCrossEntropyGradient{
    .name = "sparse_softmax_cross_entropy_gradient",
    .summary = "(probs - one_hot(labels)) * dloss",
    .infer = softmax_cross_entropy_op::sparse_gradient_infer,
    .gradient = softmax_cross_entropy_op::sparse_gradient_gradient,
    .in_place = softmax_cross_entropy_op::kGradientInPlace,
    .rows = rows_map,
    .variants = softmax_cross_entropy_op::kSparseGradientVariants,
    .cost = softmax_cross_entropy_op::gradient_cost,
    .samples = softmax_cross_entropy_op::sparse_gradient_samples,
};

const Op kSoftmaxCrossEntropy{
    .name = "softmax_cross_entropy",
    .summary = "cross-entropy of target distributions under softmax(logits), and the softmax",
    .infer = softmax_cross_entropy_op::infer,
    .gradient = softmax_cross_entropy_op::gradient,
    .in_place = softmax_cross_entropy_op::kInPlace,
    .rows = rows_map,
    .variants = softmax_cross_entropy_op::kVariants,
    .cost = softmax_cross_entropy_op::cost,
    .samples = softmax_cross_entropy_op::samples,
};

const Op kSoftmaxCrossEntropyGradient{
    .name = "softmax_cross_entropy_gradient",
    .summary = "(probs * sum(targets) - targets) * dloss",
    .infer = softmax_cross_entropy_op::gradient_infer,
    .gradient = softmax_cross_entropy_op::gradient_gradient,
    .in_place = softmax_cross_entropy_op::kGradientInPlace,
    .rows = rows_map,
    .variants = softmax_cross_entropy_op::kGradientVariants,
    .cost = softmax_cross_entropy_op::gradient_cost,
    .samples = softmax_cross_entropy_op::gradient_samples,
};

SoftmaxCrossEntropyResult sparse_softmax_cross_entropy(const Tensor& logits, const Tensor& labels) {
  Tensors out = apply(kSparseSoftmaxCrossEntropy, {logits, labels});
  return {out[0], out[1]};
}

SoftmaxCrossEntropyResult softmax_cross_entropy(const Tensor& logits, const Tensor& targets) {
  Tensors out = apply(kSoftmaxCrossEntropy, {logits, targets});
  return {out[0], out[1]};
}

Tensor sparse_softmax_cross_entropy_gradient(const Tensor& probs, const Tensor& labels,
                                             const Tensor& dloss) {
  return apply(kSparseSoftmaxCrossEntropyGradient, {probs, labels, dloss})[0];
}

Tensor softmax_cross_entropy_gradient(const Tensor& probs, const Tensor& targets,
                                      const Tensor& dloss) {
  return apply(kSoftmaxCrossEntropyGradient, {probs, targets, dloss})[0];
}

}  // namespace pl

#include "op/accuracy.h"

#include "op/infer.h"

namespace pl {
namespace accuracy_op {
namespace {

void expect_scores(const char* op, const Metas& in, const Attrs& attrs) {
  expect_operands(op, 2, 2, in, attrs);
  if (in[0].shape.rank() < 2 || !is_real(in[0].dtype))
    reject(op, "scores (B, ..., C) of float32 or float64", in, attrs);
  if (in[0].shape.back() < 1) reject(op, "at least one class", in, attrs);
  checked(op, {in[0]});
}

// (B, ...) of scores (B, ..., C).
Shape without_classes(const Shape& shape) {
  return Shape(std::vector<Dim>(shape.begin(), shape.end() - 1));
}

// Inputs: scores (B, ..., C), labels int32 (B, ...).
Metas sparse_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "sparse_categorical_accuracy";
  expect_scores(op, in, attrs);
  if (in[1] != Meta{Dtype::int32, without_classes(in[0].shape)})
    reject(op, "an int32 label for each row of scores", in, attrs);
  return {{Dtype::float32, without_classes(in[0].shape)}};
}

// Inputs: scores and targets (B, ..., C).
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "categorical_accuracy";
  expect_scores(op, in, attrs);
  if (in[1] != in[0]) reject(op, "targets like the scores", in, attrs);
  return {{Dtype::float32, without_classes(in[0].shape)}};
}

// Both or neither: labels without rows would have to be cut along with the batch.
Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 3 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = static_cast<double>(in[0].elements());
  return result;
}

std::vector<Sample> sparse_samples() {
  auto sample = [](const char* name, Dim batch, Dim classes, bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, {batch, classes}}}, {{Dtype::int32, {batch}}, Fill::labels}},
                  {},
                  0,
                  benchmark};
  };
  return {
      sample("two_classes", 19, 2),
      sample("digits", 7, 10),
      sample("one_class", 3, 1),
      sample("empty", 0, 10),
      {"sequence", {{{Dtype::float32, {2, 3, 5}}}, {{Dtype::int32, {2, 3}}, Fill::labels}}, {}, 0},
      sample("b128", 128, 10, true)};
}

std::vector<Sample> samples() {
  auto sample = [](const char* name, Dim batch, Dim classes, Fill targets, bool benchmark = false) {
    const Meta meta{Dtype::float32, {batch, classes}};
    return Sample{name, {{meta}, {meta, targets}}, {}, 0, benchmark};
  };
  return {sample("two_classes", 19, 2, Fill::one_hot), sample("digits", 7, 10, Fill::one_hot),
          sample("soft", 11, 3, Fill::probabilities), sample("empty", 0, 10, Fill::one_hot),
          sample("b128", 128, 10, Fill::one_hot, true)};
}

constexpr Variant kSparseVariants[] = {
    {"reference", DeviceKind::cpu, cpu::sparse_categorical_accuracy_reference},
};
constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::categorical_accuracy_reference},
};

}  // namespace
}  // namespace accuracy_op

const Op kSparseCategoricalAccuracy{
    .name = "sparse_categorical_accuracy",
    .summary = "1 where the largest score is at the label, else 0",
    .infer = accuracy_op::sparse_infer,
    .rows = accuracy_op::rows,
    .variants = accuracy_op::kSparseVariants,
    .cost = accuracy_op::cost,
    .samples = accuracy_op::sparse_samples,
};

const Op kCategoricalAccuracy{
    .name = "categorical_accuracy",
    .summary = "1 where score and target are largest at one class, else 0",
    .infer = accuracy_op::infer,
    .rows = accuracy_op::rows,
    .variants = accuracy_op::kVariants,
    .cost = accuracy_op::cost,
    .samples = accuracy_op::samples,
};

Tensor sparse_categorical_accuracy(const Tensor& scores, const Tensor& labels) {
  return apply(kSparseCategoricalAccuracy, {scores, labels})[0];
}

Tensor categorical_accuracy(const Tensor& scores, const Tensor& targets) {
  return apply(kCategoricalAccuracy, {scores, targets})[0];
}

}  // namespace pl

#include "op/linear_cross_entropy.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace linear_cross_entropy_op {
namespace {

constexpr const char* kName = "linear_cross_entropy";

// Rows of a block, from the number of classes alone: neither the batch nor a budget changes how the
// sums are cut. Each block passes over W and dW once, so fewer rows cost time (at 50,304 classes 64
// rows take 12 % more than 128), and more rows cost bytes.
Dim block_rows(Dim classes) { return classes <= 8192 ? 256 : 128; }

// Classes of a piece: the last may be shorter, but whole ones save kernels. Rows of logits that are
// hundreds of KiB apart cost dh 15 %; pieces lie one after another, their rows close together.
Dim piece_classes(Dim classes) {
  constexpr Dim kMost = 4096;
  if (classes <= kMost) return classes;
  for (Dim size = kMost; size >= kMost / 4; size -= 16)
    if (classes % size == 0) return size;
  return kMost;
}

// Inputs: h (..., D), w (D, C), labels int32; bias (C,) if bias=1; dloss if gradients=1.
// Outputs: loss; dh, dw and, with a bias, dbias if gradients=1; correct.
Metas infer(const Metas& in, const Attrs& attrs) {
  const bool bias = attrs.integer("bias", 0), gradients = attrs.integer("gradients", 0);
  const size_t operands = size_t{3} + bias + gradients;
  expect_operands(kName, operands, operands, in, attrs);
  const Meta &h = in[0], &w = in[1], &labels = in[2];
  const bool tb = attrs.integer("transpose_b", 0);
  if (!is_real(h.dtype) || h.shape.rank() < 2 || w.dtype != h.dtype || w.shape.rank() != 2)
    reject(kName, "rows (..., D) and a matrix of one floating dtype", in, attrs);
  checked(kName, {h, w});
  const Dim inner = h.shape.back(), classes = w.shape[tb ? 0 : 1];
  if (w.shape[tb ? 1 : 0] != inner || classes < 1)
    reject(kName, "equal inner dimensions and at least one class", in, attrs);
  if (inner < 1) reject(kName, "at least one feature", in, attrs);
  if (labels.dtype != Dtype::int32 || labels.elements() != h.elements() / inner)
    reject(kName, "an int32 label for each row of h", in, attrs);
  const Dtype full = wide(h.dtype);  // of all but h, w and dh
  if (bias && in[3] != Meta{full, Shape{classes}}) reject(kName, "a bias (C,)", in, attrs);
  const Meta loss{full, labels.shape};
  if (gradients && in.back() != loss) reject(kName, "dloss like the labels", in, attrs);
  Metas out{loss};
  if (gradients) out.insert(out.end(), {h, {full, w.shape}});
  if (gradients && bias) out.push_back(in[3]);
  out.push_back({Dtype::float32, labels.shape});
  return checked(kName, std::move(out));
}

// Bias and dloss.
RowMask wide_operands(const Attrs&, size_t) { return 0b11000; }

// Labels and dloss must carry rows as h does, the weights must not.
Rows rows_of(const Attrs& attrs, RowMask in, int out) {
  if (!in) return Rows::none;
  const bool bias = attrs.integer("bias", 0), gradients = attrs.integer("gradients", 0);
  RowMask wanted = 0b101;
  if (gradients) wanted |= RowMask{1} << (bias ? 4 : 3);
  if (in != wanted) return Rows::mixes;
  const bool of_weights = gradients && (out == 2 || (bias && out == 3));
  return of_weights ? Rows::sums : Rows::maps;
}

Rows rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  const double features = static_cast<double>(std::max<Dim>(1, in[0].shape.back()));
  const double rows = static_cast<double>(in[0].elements()) / features;
  const double weights = static_cast<double>(in[1].elements());
  const Dim classes = in[1].shape[attrs.integer("transpose_b", 0) ? 0 : 1];
  const bool gradients = attrs.integer("gradients", 0);
  Cost result = pointwise_cost(in, out, 0);
  result.flops = rows * ((gradients ? 6 : 2) * weights + 10 * static_cast<double>(classes));
  // W for the logits and for dh, dW to and fro, once a block.
  const double blocks = rows / static_cast<double>(block_rows(classes));
  result.bytes +=
      blocks * weights * (gradients ? 4 : 1) * static_cast<double>(size_of(in[0].dtype));
  return result;
}

struct Size {
  const char* name;
  Shape rows;
  Dim inner, classes;
  bool transpose_b, bias, gradients;
  bool benchmark = false;
};

std::vector<Sample> samples() {
  const std::vector<Size> sizes = {
      {"evaluate", {5}, 3, 7, false, true, false},
      {"evaluate_tied", {2, 3}, 3, 7, true, false, false},
      {"step", {5}, 3, 7, false, true, true},
      {"tied", {2, 3}, 4, 9, true, false, true},
      {"blocks", {2, 301}, 5, 11, true, true, true},  // two blocks and a rest
      {"one_feature", {300}, 1, 6, false, false, true},
      {"one_feature_evaluate", {300}, 1, 6, false, false, false},
      {"one_class", {3}, 1, 1, true, true, true},
      {"no_rows", {0}, 3, 7, false, true, true},
      {"pieces", {3}, 2, 4101, false, true, true},
      {"pieces_tied", {2, 2}, 2, 4112, true, false, true},
      {"gpt_tiny_b8", {8, 256}, 256, 1024, true, false, true, true},
      {"words_b1", {256}, 768, 50304, true, false, true, true},
  };
  std::vector<Sample> list;
  for (const Size& size : sizes) {
    std::vector<Dim> h = size.rows.dims();
    h.push_back(size.inner);
    const Shape w =
        size.transpose_b ? Shape{size.classes, size.inner} : Shape{size.inner, size.classes};
    Sample sample{size.name,
                  {{{Dtype::float32, Shape(std::move(h))}},
                   {{Dtype::float32, w}},
                   {{Dtype::int32, size.rows}, Fill::labels}},
                  {},
                  1e-5,
                  size.benchmark};
    if (size.transpose_b) sample.attrs.set("transpose_b", int64_t{1});
    if (size.bias) sample.attrs.set("bias", int64_t{1});
    if (size.bias) sample.in.push_back({{Dtype::float32, {size.classes}}});
    if (size.gradients) sample.attrs.set("gradients", int64_t{1});
    if (size.gradients) sample.in.push_back({{Dtype::float32, size.rows}});
    list.push_back(std::move(sample));
  }
  return list;
}

// Operands of the op without a sum.
Metas behind_sum(const Metas& in) { return {in.begin() + 1, in.end()}; }

Metas accumulate_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* name = "linear_cross_entropy_accumulate";
  if (in.empty() || !attrs.integer("gradients", 0))
    reject(name, "a sum first, and gradients", in, attrs);
  Metas out = infer(behind_sum(in), attrs);
  if (in[0] != out[2]) reject(name, "a sum that looks like dw first", in, attrs);
  return out;
}

Cost accumulate_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  return cost(behind_sum(in), out, attrs);
}

std::vector<Sample> accumulate_samples() {
  std::vector<Sample> list;
  for (Sample& sample : samples()) {
    if (!sample.attrs.integer("gradients", 0)) continue;
    sample.in.insert(sample.in.begin(), {sample.in[1].meta});
    list.push_back(std::move(sample));
  }
  return list;
}

constexpr Variant kAccumulateVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::linear_cross_entropy_accumulate_onednn},
    {"reference", DeviceKind::cpu, cpu::linear_cross_entropy_accumulate_reference},
};
constexpr InOut kAccumulateInPlace[] = {{1, 1}};
constexpr InOut kNextVersion[] = {{0, 2}};

constexpr Variant kVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::linear_cross_entropy_onednn},
    {"reference", DeviceKind::cpu, cpu::linear_cross_entropy_reference},
};
// dh takes h's place: a block of h is read for the last time before that block of dh is written.
// (Without gradients output 1 is `correct`, of which the same holds.)
constexpr InOut kInPlace[] = {{0, 1}};

}  // namespace
}  // namespace linear_cross_entropy_op

const Op kLinearCrossEntropy{
    .name = linear_cross_entropy_op::kName,
    .summary =
        "cross-entropy of integer labels under softmax(h x w + bias), with its gradients, "
        "in blocks of rows",
    .infer = linear_cross_entropy_op::infer,
    .in_place = linear_cross_entropy_op::kInPlace,
    .rows = linear_cross_entropy_op::rows,
    .rows_of = linear_cross_entropy_op::rows_of,
    .wide_operands = linear_cross_entropy_op::wide_operands,
    .variants = linear_cross_entropy_op::kVariants,
    .cost = linear_cross_entropy_op::cost,
    .samples = linear_cross_entropy_op::samples,
};

const Op kLinearCrossEntropyAccumulate{
    .name = "linear_cross_entropy_accumulate",
    .summary = "linear_cross_entropy whose gradient of w is added to a running sum",
    .infer = linear_cross_entropy_op::accumulate_infer,
    .in_place = linear_cross_entropy_op::kAccumulateInPlace,
    .next_version = linear_cross_entropy_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = linear_cross_entropy_op::kAccumulateVariants,
    .cost = linear_cross_entropy_op::accumulate_cost,
    .samples = linear_cross_entropy_op::accumulate_samples,
};

LinearCrossEntropyResult linear_cross_entropy(const Tensor& h, const Tensor& w,
                                              const Tensor& labels, bool transpose_b,
                                              const Tensor& bias, const Tensor& dloss) {
  Tensors in{h, w, labels};
  Attrs attrs;
  auto flag = [&](const char* name, bool value) {
    if (value) attrs.set(name, int64_t{1});
  };
  flag("transpose_b", transpose_b);
  flag("bias", bias.defined());
  flag("gradients", dloss.defined());
  if (bias.defined()) in.push_back(bias);
  if (dloss.defined()) in.push_back(dloss);
  const Tensors out = apply(kLinearCrossEntropy, std::move(in), std::move(attrs));
  LinearCrossEntropyResult result{.loss = out[0]};
  size_t next = 1;
  if (dloss.defined()) result.dh = out[next++];
  if (dloss.defined()) result.dw = out[next++];
  if (dloss.defined() && bias.defined()) result.dbias = out[next++];
  result.correct = out[next];
  return result;
}

namespace cpu {

LinearCrossEntropyForm linear_cross_entropy_form(const PrepareCall& call, bool accumulate) {
  LinearCrossEntropyForm form{};
  form.first = accumulate;
  const Meta* in = call.in.data() + form.first;
  form.transpose_b = call.attrs.integer("transpose_b", 0);
  form.inner = in[0].shape.back();
  form.classes = in[1].shape[form.transpose_b ? 0 : 1];
  form.rows = in[2].elements();
  form.block = linear_cross_entropy_op::block_rows(form.classes);
  form.piece = linear_cross_entropy_op::piece_classes(form.classes);
  form.bias = form.dloss = form.dh = form.dw = form.dbias = -1;
  const bool bias = call.attrs.integer("bias", 0), gradients = call.attrs.integer("gradients", 0);
  if (bias) form.bias = 3;
  int next = 1;
  if (gradients) {
    form.dloss = bias ? 4 : 3;
    form.dh = next++;
    form.dw = next++;
    if (bias) form.dbias = next++;
  }
  form.correct = next;
  return form;
}

}  // namespace cpu
}  // namespace pl

#include "op/update.h"

#include <algorithm>

#include "op/broadcast.h"
#include "op/infer.h"

namespace pl {
namespace update_op {
namespace {

constexpr const char* kUpdateName = "update";
constexpr const char* kSumsName = "sum_squares";

// The tensors in front of `others` further operands, all of one dtype, broadcast to one shape.
Shape tensors_shape(const char* op, const Metas& in, const Attrs& attrs, size_t others) {
  expect_operands(op, 1 + others, static_cast<size_t>(kMostStepOperands) + others, in, attrs);
  Shape shape;
  for (size_t i = 0; i + others < in.size(); ++i) {
    const Shape before = shape;
    if ((in[i].dtype != Dtype::float32 && in[i].dtype != Dtype::float64) ||
        in[i].dtype != in[0].dtype || !broadcast_shapes(before, in[i].shape, &shape))
      reject(op, "tensors that broadcast, all float32 or all float64", in, attrs);
  }
  if (in.back() != step_params_meta())
    reject(op, "step parameters uint8 (64) at the end", in, attrs);
  return shape;
}

StepProgram program_of(const char* op, const Metas& in, const Attrs& attrs, size_t others) {
  auto program = step_program_of(attrs, static_cast<int>(in.size() - others));
  if (!program) reject(op, "a program over these operands", in, attrs);
  return *program;
}

// Inputs: the variables, further operands that broadcast to their shape, with `guarded` a flag {},
// and the step's parameters. Outputs: the variables' next versions, or where the flag is zero the
// variables as they were.
Metas infer(const Metas& in, const Attrs& attrs) {
  const bool guarded = attrs.integer("guarded", 0) != 0;
  const size_t others = guarded ? 2 : 1;
  const Shape shape = tensors_shape(kUpdateName, in, attrs, others);
  const StepProgram program = program_of(kUpdateName, in, attrs, others);
  const size_t written = program.outputs.size();
  if (written > static_cast<size_t>(kMostUpdated) || written + others > in.size())
    reject(kUpdateName, "one operand for each output", in, attrs);
  Metas out(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(written));
  for (const Meta& variable : out)
    if (variable.shape != shape) reject(kUpdateName, "variables of one shape", in, attrs);
  for (int64_t id : program.outputs)
    if (id < program.tile.operands) reject(kUpdateName, "outputs that are computed", in, attrs);
  if (guarded && in[in.size() - 2] != Meta{in[0].dtype, Shape{}})
    reject(kUpdateName, "a flag without dimensions", in, attrs);
  return checked(kUpdateName, std::move(out));
}

// Inputs: operands that broadcast, and the step's parameters. Outputs, one for each of the
// program's: the sum of its squares over all elements, {}.
Metas sums_infer(const Metas& in, const Attrs& attrs) {
  checked(kSumsName,
          {{in.empty() ? Dtype::float32 : in[0].dtype, tensors_shape(kSumsName, in, attrs, 1)}});
  const StepProgram program = program_of(kSumsName, in, attrs, 1);
  if (program.outputs.size() > static_cast<size_t>(kMostUpdated))
    reject(kSumsName, "eight sums at most", in, attrs);
  return Metas(program.outputs.size(), Meta{in[0].dtype, Shape{}});
}

Rows sums_rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }

double flops_of(const Metas& in, const Attrs& attrs, size_t others) {
  double flops = 0;
  const auto program = step_program_of(attrs, static_cast<int>(in.size() - others));
  if (program)
    for (const TileInstruction& made : program->tile.code) flops += pl::flops_of(made.op);
  return flops;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  const size_t others = attrs.integer("guarded", 0) ? 2 : 1;
  const double flops = flops_of(in, attrs, others) / static_cast<double>(out.size());
  return pointwise_cost(in, out, flops);
}

Cost sums_cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  Cost cost = pointwise_cost(in, out, 0);
  Dim elements = 0;
  for (const Meta& meta : in) elements = std::max(elements, meta.elements());
  const double flops = flops_of(in, attrs, 1) + 2 * static_cast<double>(out.size());
  cost.flops = flops * static_cast<double>(elements);
  return cost;
}

Sample sample(const char* name, const std::vector<Shape>& shapes, const char* scalars,
              std::vector<int64_t> uses, const char* program, std::vector<int64_t> outputs,
              bool benchmark = false) {
  Sample made{name,
              {},
              {{"program", std::string(program)}, {"outputs", std::move(outputs)}},
              1e-5,
              benchmark};
  if (*scalars) {
    made.attrs.set("scalars", std::string(scalars));
    made.attrs.set("uses", std::move(uses));
  }
  for (const Shape& shape : shapes) made.in.push_back({{Dtype::float32, shape}, Fill::positive});
  made.in.push_back({step_params_meta(), Fill::step_params});
  return made;
}

std::vector<Sample> samples() {
  // w, m, v, g: AdamW.
  const char* rates =
      "rate;step;constant 0.9;constant 0.999;power 2 1;power 3 1;constant 1;subtract 6 4;"
      "subtract 6 5;sqrt 8;multiply 0 9;divide 10 7";
  const char* adamw =
      "scale 0 0.004 0;multiply 6 4;subtract 0 7;subtract 3 1;scale 9 0.1 0;add 1 10;square 3;"
      "subtract 12 2;scale 13 0.001 0;add 2 14;multiply 11 5;sqrt 15;scale 17 1 1e-07;"
      "divide 16 18;subtract 8 19";
  const std::vector<int64_t> uses{0, 11}, outputs{20, 11, 15};
  auto four = [](const Shape& shape) { return std::vector<Shape>(4, shape); };
  std::vector<Sample> list{
      sample("scalar", four({}), rates, uses, adamw, outputs),
      sample("matrix", four({5, 7}), rates, uses, adamw, outputs),
      sample("empty", four({0}), rates, uses, adamw, outputs),
      sample("many", four({33, 1031}), rates, uses, adamw, outputs),
      sample("mlp", four({784, 512}), rates, uses, adamw, outputs, true),
      // The first output's variable is read after it is known; one value goes to two outputs.
      sample("late_reads", {{6, 90}, {6, 90}, {6, 90}}, "", {},
             "add 0 1;subtract 0 1;multiply 4 2;add 3 2", {3, 4, 4}),
      // Operands that broadcast along rows, columns and to all elements.
      sample("broadcast", {{3, 4, 50}, {3, 4, 50}, {3, 4, 1}, {3, 1, 50}, {}}, "step;multiple 0 2",
             {1}, "multiply 2 3;multiply 6 4;subtract 1 7;maximum 8 5;add 0 9", {10, 9}),
  };
  Sample guarded =
      sample("guarded", {{4, 33}, {4, 33}, {}}, "rate", {0}, "multiply 1 2;subtract 0 3", {4});
  guarded.attrs.set("guarded", int64_t{1});
  list.push_back(guarded);
  guarded.name = "skipped";
  guarded.in[2].fill = Fill::zeros;
  list.push_back(std::move(guarded));
  return list;
}

std::vector<Sample> sums_samples() {
  return {
      sample("plain", {{5, 7}}, "", {}, "", {0}),
      sample("scalar", {{}}, "", {}, "scale 0 2 1", {1}),
      sample("empty", {{0, 3}}, "", {}, "", {0}),
      // More than one piece; two sums, and an operand that broadcasts.
      sample("pieces", {{37, 1031}, {1031}}, "rate;constant 3;add 0 1;maximum 2 0;minimum 3 1", {4},
             "divide 0 1;multiply 3 2", {4, 1}),
      sample("mlp", {{784, 512}}, "", {}, "", {0}, true),
  };
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::update_simd},
    {"reference", DeviceKind::cpu, cpu::update_reference},
};
constexpr Variant kSumsVariants[] = {
    {"simd", DeviceKind::cpu, cpu::sum_squares_simd},
    {"reference", DeviceKind::cpu, cpu::sum_squares_reference},
};
// As many of them as there are outputs.
constexpr InOut kNextVersion[kMostUpdated] = {{0, 0}, {1, 1}, {2, 2}, {3, 3},
                                              {4, 4}, {5, 5}, {6, 6}, {7, 7}};

}  // namespace
}  // namespace update_op

const Op kUpdate{
    .name = update_op::kUpdateName,
    .summary = "an optimiser's update of variables, in one pass",
    .infer = update_op::infer,
    .next_version = update_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = update_op::kVariants,
    .cost = update_op::cost,
    .samples = update_op::samples,
};

const Op kSumSquares{
    .name = update_op::kSumsName,
    .summary = "sums of squares of what a chain of pointwise ops computes",
    .infer = update_op::sums_infer,
    .rows = update_op::sums_rows,
    .variants = update_op::kSumsVariants,
    .cost = update_op::sums_cost,
    .samples = update_op::sums_samples,
};

}  // namespace pl

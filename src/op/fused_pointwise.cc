#include "op/fused_pointwise.h"

#include "op/broadcast.h"
#include "op/infer.h"
#include "op/step_params.h"

namespace pl {
namespace fused_pointwise_op {
namespace {

constexpr const char* kName = "fused_pointwise";

// Inputs: the program's operands. Attributes: program, dtype; aligned, a bit per operand whose
// dimension 0 is the result's; single, set when that dimension is 1; height and starts as for
// dropout, where it is in the program.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands(kName, 1, static_cast<size_t>(kMostTileOperands), in, attrs);
  const Dtype dtype = dtype_attr(kName, attrs);
  const auto program = parse_tile_program(attrs.text("program"), static_cast<int>(in.size()));
  if (!program || !is_real(dtype))
    reject(kName, "a program over these operands in float32 or float64", in, attrs);
  std::vector<bool> cast(in.size(), false), params(in.size(), false);
  for (const TileInstruction& made : program->code) {
    if (made.op == TileOp::cast) cast[static_cast<size_t>(made.a)] = true;
    if (made.op == TileOp::dropout) params[static_cast<size_t>(made.b)] = true;
  }
  Shape shape;
  for (size_t i = 0; i < in.size(); ++i) {
    if (params[i] ? in[i] != step_params_meta()
        : cast[i] ? !is_castable(in[i].dtype)
                  : in[i].dtype != dtype)
      reject(kName, "operands of the program's dtype, numbers to cast or step parameters", in,
             attrs);
    const Shape before = shape;
    if (!params[i] && !broadcast_shapes(before, in[i].shape, &shape))
      reject(kName, "shapes that broadcast", in, attrs);
  }
  return checked(kName, {{dtype, shape}});
}

Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  const auto aligned = static_cast<RowMask>(attrs.integer("aligned", 1));
  if (in & ~aligned) return Rows::mixes;  // samples meet another dimension
  // An operand without rows would have to be cut along with the batch.
  if ((aligned & ~in) && !attrs.integer("single", 0)) return Rows::mixes;
  return Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs& attrs) {
  double flops = 0;
  const auto program = parse_tile_program(attrs.text("program"), static_cast<int>(in.size()));
  if (program)
    for (const TileInstruction& made : program->code) flops += flops_of(made.op);
  return pointwise_cost(in, out, flops);
}

std::vector<Sample> samples() {
  using Shapes = std::vector<Shape>;
  auto sample = [](const char* name, const char* program, const Shapes& shapes, int64_t aligned,
                   bool benchmark = false) {
    Sample made{name,
                {},
                {{"program", std::string(program)},
                 {"dtype", std::string("float32")},
                 {"aligned", aligned}},
                2e-6,
                benchmark};
    for (const Shape& shape : shapes) made.in.push_back({{Dtype::float32, shape}});
    return made;
  };
  std::vector<Sample> list{
      sample("bias_tanh", "add 0 1;tanh 2", {{5, 7}, {7}}, 1),
      sample("swish", "sigmoid 0;multiply 0 1", {{4, 33}}, 1),
      sample("swish_gradient",
             "sigmoid 0;multiply 1 2;multiply 1 0;scale 2 -1 1;multiply 2 5;multiply 4 6;add 3 7",
             {{4, 33}, {4, 33}}, 3),
      sample("whole_numbers",
             "expm1 0;sin 1;multiply 2 3;floor 0;ceil 1;add 5 6;cos 7;trunc 0;round 1;subtract 9 "
             "10;mod 0 1;floor_divide 0 1;add 12 13;abs 0;power 15 1;add 4 8;add 17 11;add 18 "
             "14;add 19 16",
             {{4, 33}, {4, 33}}, 3),
      sample("column_scalar", "subtract 0 1;exp 3;divide 4 2;abs 5;sqrt 6", {{6, 5}, {6, 1}, {}},
             3),
      sample("middle", "multiply 0 1;negative 2;square 3;maximum 3 4", {{2, 3, 4}, {2, 1, 4}}, 3),
      sample("masks",
             "greater_mask 0 1;equal_mask 0 1;greater_equal_mask 1 0;add 2 3;minimum 4 5;sign "
             "0;multiply 6 7",
             {{9, 14}, {9, 14}}, 3),
      sample("rectified",
             "relu 0;relu_gradient 2 1;leaky_relu 0 0.25;leaky_relu_gradient 4 3 0.125;subtract 5 "
             "4",
             {{3, 50}, {3, 50}}, 3),
      sample("gelu", "gelu 0 0;gelu_gradient 0 1 1;gelu 3 1;gelu_gradient 2 4 0;add 5 2",
             {{6, 21}, {6, 21}}, 3),
      sample("scalar", "scale 0 3 -1;square 1", {{}}, 0),
      sample("empty", "scale 0 3 -1;add 2 1", {{0, 4}, {4}}, 1),
      // More than one tile of 1024 elements.
      sample("tiles", "add 0 1;tanh 2;multiply 3 0;scale 4 0.5 0.25", {{7, 611}, {611}}, 1),
      sample("large", "add 0 1;tanh 2;multiply 3 0;scale 4 0.5 0.25", {{256, 4096}, {4096}}, 1,
             true),
  };
  list.push_back({"pixels",
                  {{{Dtype::uint8, {4, 28}}, Fill::bytes}},
                  {{"program", std::string("cast 0;scale 1 0.00392156862745098 0")},
                   {"dtype", std::string("float32")},
                   {"aligned", int64_t{1}}},
                  1e-6});
  list.push_back({"dropout",
                  {{{Dtype::float32, {4, 35}}},
                   {step_params_meta(), Fill::step_params},
                   {{Dtype::float32, {4, 35}}}},
                  {{"program", std::string("dropout 0 1 0.25 103845342768877 1;add 3 2")},
                   {"dtype", std::string("float32")},
                   {"aligned", int64_t{5}}},
                  1e-6});
  return list;
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::fused_pointwise_simd},
    {"reference", DeviceKind::cpu, cpu::fused_pointwise_reference},
};
// Operands are read before the result of a tile is written; those that broadcast are smaller.
constexpr InOut kInPlace[kMostTileOperands] = {{0, 0},  {1, 0},  {2, 0},  {3, 0}, {4, 0},  {5, 0},
                                               {6, 0},  {7, 0},  {8, 0},  {9, 0}, {10, 0}, {11, 0},
                                               {12, 0}, {13, 0}, {14, 0}, {15, 0}};

}  // namespace
}  // namespace fused_pointwise_op

const Op kFusedPointwise{
    .name = fused_pointwise_op::kName,
    .summary = "a chain of pointwise ops in one pass",
    .infer = fused_pointwise_op::infer,
    .in_place = fused_pointwise_op::kInPlace,
    .rows = fused_pointwise_op::rows,
    .effects = {.random = true},  // where dropout is in it
    .variants = fused_pointwise_op::kVariants,
    .cost = fused_pointwise_op::cost,
    .samples = fused_pointwise_op::samples,
};

Attrs fused_pointwise_attrs(const Metas& in, const Shape& out, std::string program, Dtype dtype) {
  Attrs attrs{{"program", std::move(program)}, {"dtype", std::string(name_of(dtype))}};
  int64_t aligned = 0;
  for (size_t i = 0; i < in.size(); ++i)
    if (out.rank() > 0 && in[i].shape.rank() == out.rank() && in[i].shape[0] == out[0])
      aligned |= int64_t{1} << i;
  attrs.set("aligned", aligned);
  if (out.rank() > 0 && out[0] == 1) attrs.set("single", int64_t{1});
  return attrs;
}

Tensor fused_pointwise(const Tensors& in, const std::string& program, Dtype dtype) {
  Metas metas;
  for (const Tensor& tensor : in) metas.push_back(tensor.meta());
  const Attrs plain{{"program", program}, {"dtype", std::string(name_of(dtype))}};
  const Shape out = fused_pointwise_op::infer(metas, plain)[0].shape;
  return apply(kFusedPointwise, in, fused_pointwise_attrs(metas, out, program, dtype))[0];
}

}  // namespace pl

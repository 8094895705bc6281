// A chain of pointwise ops as a short program: what `fused_pointwise` runs tile by tile. Values are
// numbered: the node's operands first, then one for each instruction; the last one is the result.
//
//   text       "cast 0;scale 2 0.5 0;add 3 1"      operands 0 and 1, then %2, %3 and the result %4
//
// An instruction is a pointwise op with its operands and constants, and rounds as the op does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "tensor/dtype.h"

namespace pl {

enum class TileOp : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  equal_mask,
  greater_mask,
  greater_equal_mask,
  floor_divide,
  mod,
  power,
  negative,
  exp,
  log,
  sqrt,
  square,
  tanh,
  sigmoid,
  abs,
  sign,
  softplus,
  expm1,
  sin,
  cos,
  floor,
  ceil,
  trunc,
  round,
  scale,
  relu,
  relu_gradient,
  leaky_relu,
  leaky_relu_gradient,
  gelu,
  gelu_gradient,
  cast,     // of an operand with another dtype
  dropout,  // operands: x, the step's parameters; also dropout_gradient
};

struct TileInstruction {
  TileOp op = TileOp::add;
  int a = -1, b = -1;   // values; b is -1 where the op has one
  double x = 0, y = 0;  // factor and offset; alpha; approximate; rate
  int64_t stream = 0;   // of dropout
  bool rows = true;     // dropout counts elements from the micro-batch's first sample
};

struct TileProgram {
  int operands = 0;
  std::vector<TileInstruction> code;
};

// Bounds of a program: its registers lie on the stack, and every step of a plan holds all operands.
inline constexpr int kMostTileOperands = 16;
inline constexpr int kMostTileInstructions = 128;
inline constexpr int kMostTileRegisters = 16;

bool is_castable(Dtype dtype);  // what the instruction `cast` reads
int operands_of(TileOp op);
double flops_of(TileOp op);  // for each element

// The instruction that does what the node `op` with these attributes does; operands are unset.
std::optional<TileInstruction> tile_instruction(const std::string& op, const Attrs& attrs);

std::string print(const TileProgram& program);
// Nothing if the text is no program over so many operands, or exceeds a bound.
std::optional<TileProgram> parse_tile_program(const std::string& text, int operands);

// How many values exist at once when each operand has to be copied to a register first.
int registers_of(const TileProgram& program);

}  // namespace pl

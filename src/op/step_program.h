// What an update computes for every element of a variable, as text: a chain of pointwise ops with
// several results (tile_program.h), and before it the numbers of the step that it reads, such as
// Adam's rate, which are the same for all elements.
//
//   scalars    "rate;step;constant 0.9;power 2 1"     numbered from 0: #0, #1, ...
//   uses       [3]                                    the scalars that the program reads
//   program    "multiply 0 1"                         operands: the call's tensors, then `uses`
//   outputs    [2]                                    values of the program
//
// Scalars are computed in the variables' dtype, each rounded once, as Keras does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "op/step_params.h"
#include "op/tile_program.h"

namespace pl {

enum class ScalarOp : uint8_t {
  rate,      // the step's learning rate
  step,      // how many updates there were, this one included: 1 in the first
  constant,  // x
  add,
  subtract,
  multiply,
  divide,
  minimum,
  maximum,
  sqrt,
  power,     // a to the power of b
  greater,   // 1 where a > b, else 0
  multiple,  // 1 where a is a multiple of x, else 0
};

struct ScalarInstruction {
  ScalarOp op = ScalarOp::constant;
  int a = -1, b = -1;
  double x = 0;
  bool operator==(const ScalarInstruction&) const = default;
};

struct StepProgram {
  int tensors = 0;
  std::vector<ScalarInstruction> scalars;
  std::vector<int64_t> uses;
  TileProgram tile;
  std::vector<int64_t> outputs;
};

inline constexpr int kMostStepOperands = 24;  // tensors and scalars that a program reads
inline constexpr int kMostStepRegisters = 24;
inline constexpr int kMostScalars = 64;

int operands_of(ScalarOp op);
bool has_constant(ScalarOp op);

Attrs attrs_of(const StepProgram& program);
// Nothing if the attributes are no program over so many tensors.
std::optional<StepProgram> step_program_of(const Attrs& attrs, int tensors);

// The values of all scalars in T, float or double. `values` has room for each.
template <class T>
void compute_scalars(const std::vector<ScalarInstruction>& scalars, const StepParams& params,
                     T* values);

}  // namespace pl

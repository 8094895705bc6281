// The text of CUDA kernels for chains of pointwise ops (tile_program.h): one pass over the
// operands, shapes and constants written into it. For fused_pointwise, update and sum_squares.
#pragma once

#include <string>
#include <vector>

#include "op/op.h"
#include "op/step_program.h"
#include "op/tile_program.h"

namespace pl::cuda {

// What a kernel gets: pointers by their place among operands and outputs.
struct TileArgs {
  const void* in[32];
  void* out[8];
  void* parts;  // of sums: (outputs, blocks)
};

extern const char* const kTilePrelude;  // the texts' first lines

struct TileSource {
  TileProgram tile;
  std::vector<ScalarInstruction> scalars;  // computed once for each block
  std::vector<int64_t> uses;               // those that the program reads, behind the tensors
  std::vector<int64_t> outputs;            // values of the program
  Metas tensors;                           // operands that are tensors
  Shape shape;                             // what they broadcast to
  Dtype dtype;                             // of outputs
  int params = -1;                         // place of the step's parameters
  int flag = -1;                           // place of a flag: 0 leaves the outputs' operands
  bool sums = false;                       // of squares, instead of elements
  std::vector<int64_t> starts;             // of bands of image rows, with height (op/dropout.h)
  int64_t height = 0;
  std::vector<Bytes> aligned = {};  // the tensors' addresses; empty: in full
  Bytes out_aligned = kFullAlignment;

  int width() const;       // elements of a thread at a time
  int64_t chunks() const;  // threads that have something to do
  std::string text() const;
};

}  // namespace pl::cuda

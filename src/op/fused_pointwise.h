// fused_pointwise: a chain of pointwise ops in one pass over its operands. What lies between them
// never exists beyond a tile of a few KiB. Made by the pass of plan/fuse_pointwise.cc behind
// autodiff, so it has no gradient of its own.
#pragma once

#include "op/op.h"
#include "op/tile_program.h"

namespace pl {

extern const Op kFusedPointwise;

// Operands broadcast as NumPy's do. `program` is the text of a TileProgram, `dtype` what it
// computes in.
Tensor fused_pointwise(const Tensors& in, const std::string& program, Dtype dtype);

// The attributes of a node: program, dtype and how the operands lie along dimension 0.
Attrs fused_pointwise_attrs(const Metas& in, const Shape& out, std::string program, Dtype dtype);

namespace cpu {
// One instruction on `count` elements; y may be a or b.
void run_tile_simd(const TileInstruction&, const float* a, const float* b, float* y, Dim count);

std::unique_ptr<Kernel> fused_pointwise_simd(const PrepareCall&);
std::unique_ptr<Kernel> fused_pointwise_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

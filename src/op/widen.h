// 16-bit floats on the way to and from float32: conversion of ranges, and the kernel that computes
// any call in float32 whose op has none for 16 bits.
#pragma once

#include "op/op.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"

namespace pl::cpu {

// to[i] = from[i], rounded to nearest even where it narrows; on the calling thread.
void convert_range(const Bfloat16* from, float* to, Dim count);
void convert_range(const float* from, Bfloat16* to, Dim count);

void convert_range(const Float16* from, float* to, Dim count);
void convert_range(const float* from, Float16* to, Dim count);
// The same from and to the 16-bit floats that a dtype says.
void widen_range(Dtype dtype, const void* from, float* to, Dim count);
void narrow_range(Dtype dtype, const float* from, void* to, Dim count);

// Each element rounded to the nearest bfloat16, still as float32.
void round_range(float* x, Dim count);

// `rows` rows of `width`, `stride` apart, to rows of `width`.
void widen_rows(const Bfloat16* from, Dim rows, Dim stride, Dim width, float* to);

// Null where no operand or output has 16 bits, or the op refuses the call in float32 too. Operands
// are widened into planned workspace, where the float32 kernel runs; what it gives is rounded.
// Where the op's `cut` allows, that happens in pieces that stay in a core's cache.
std::unique_ptr<Kernel> widened(const Op& op, const PrepareCall& call);

}  // namespace pl::cpu

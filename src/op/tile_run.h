// What fused_pointwise shares with other kernels that run programs in tiles.
#pragma once

#include "op/fused_pointwise.h"

namespace pl {

// What a reader of a program's text insists on. Where `reads_all` is not set, operands may be left
// over and the code may be empty: its operands are results then.
struct TileBounds {
  int operands = kMostTileOperands;
  int registers = kMostTileRegisters;
  bool reads_all = true;
};
std::optional<TileProgram> parse_tile_program(const std::string& text, int operands,
                                              const TileBounds& bounds);

namespace cpu {
// As run_tile_simd, in plain loops, of float or double.
template <class T>
void run_tile_plain(const TileInstruction&, const T* a, const T* b, T* y, Dim count);
}  // namespace cpu

}  // namespace pl

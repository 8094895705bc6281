// One head of one sample, as the SIMD kernels of attention see it: pointers, strides and the sizes
// of the pieces in a thread's workspace. For attention_simd.cc.
#pragma once

#include <algorithm>

#include "op/attention.h"

namespace pl::cpu {

inline constexpr Dim kPanel = 64;     // keys of a packed panel; a multiple of every vector
inline constexpr Dim kMostTile = 96;  // queries of a tile; multiples of the 6 rows of a block

struct AttentionHead {
  Dim queries, keys, size, q_stride, kv_stride, out_stride;
  bool causal;
  float scale;
  Dim tile;    // queries at a time
  Dim padded;  // size, up to a multiple of 16
  Dim all;     // keys, up to whole panels
  Dim line;    // elements between rows of scores: `all` and 16 more, so that rows of a tile do not
               // all fall on the same lines of the cache

  explicit AttentionHead(const AttentionForm& f)
      : queries(f.queries),
        keys(f.keys),
        size(f.size),
        q_stride(f.q_stride),
        kv_stride(f.kv_stride),
        out_stride(f.heads * f.size),
        causal(f.causal),
        scale(static_cast<float>(f.scale)) {
    padded = (size + 15) / 16 * 16;
    all = (keys + kPanel - 1) / kPanel * kPanel;
    line = all + 16;
    // Two tiles of scores should stay in a core's own cache.
    tile = line <= 640 ? kMostTile : line <= 4096 ? kMostTile / 2 : kMostTile / 4;
    tile = std::min(tile, std::max<Dim>(queries, 1));
  }

  // Floats of workspace for one thread, in the order of the kernels' pointers.
  Dim forward_space() const { return all * (size + padded) + tile * (2 * padded + line); }
  Dim backward_space() const {
    return all * (2 * size + 3 * padded) + tile * (3 * padded + 2 * line);
  }
};

// With its operands, T = float or Bfloat16. lse is float32 either way.
template <class T>
struct AttentionData : AttentionHead {
  explicit AttentionData(const AttentionHead& head) : AttentionHead(head) {}
  T *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr, *dout = nullptr;
  float *lse = nullptr, *dlse = nullptr;
};

}  // namespace pl::cpu

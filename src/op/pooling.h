// What max_pool and avg_pool share: options, the form of a call, and how both are written as
// attributes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "op/op.h"
#include "op/window.h"

namespace pl {

struct PoolOptions {
  std::array<Dim, 2> pool_size = {2, 2};
  std::array<Dim, 2> strides = {0, 0};  // 0: the pool size
  std::string padding = "valid";        // or "same", or "explicit" with pads; padding never counts
  std::array<Dim, 4> pads = {};         // top, bottom, left, right
};

PoolOptions pool_options(const Attrs& attrs);
Attrs pool_attrs(const PoolOptions& options);

struct PoolForm {
  Dim batch, channels;
  Window window;
  // No input position is read by two windows: a gradient then has no sums.
  bool disjoint() const {
    return window.h.kernel <= window.h.stride && window.w.kernel <= window.w.stride;
  }
  Shape input() const { return {batch, window.h.in, window.w.in, channels}; }
  Shape output() const { return {batch, window.h.out, window.w.out, channels}; }
};

// x (B, H, W, C). Attributes: pool_size [2], each from 1 to 2^15; strides [2]; padding. Throws
// UserError.
PoolForm pool_form(const char* op, const Shape& x, const Metas& in, const Attrs& attrs);

// A sample of either op.
struct PoolCase {
  const char* name;
  Shape x;
  std::vector<int64_t> pool, strides;
  const char* padding = "valid";
  bool benchmark = false;
  std::vector<int64_t> pads = {};
  Attrs attrs() const;
};

}  // namespace pl

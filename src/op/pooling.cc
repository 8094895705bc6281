#include "op/pooling.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {

PoolOptions pool_options(const Attrs& attrs) {
  PoolOptions options;
  const auto& pool = attrs.list("pool_size");
  options.pool_size = {pool[0], pool[1]};
  options.strides = {1, 1};
  if (attrs.has("strides")) options.strides = {attrs.list("strides")[0], attrs.list("strides")[1]};
  options.padding = attrs.text("padding", "valid");
  if (attrs.has("pads")) std::copy_n(attrs.list("pads").begin(), 4, options.pads.begin());
  return options;
}

Attrs pool_attrs(const PoolOptions& options) {
  const auto& pool = options.pool_size;
  const auto& strides = options.strides == std::array<Dim, 2>{} ? pool : options.strides;
  Attrs attrs{{"pool_size", std::vector<int64_t>(pool.begin(), pool.end())},
              {"strides", std::vector<int64_t>(strides.begin(), strides.end())},
              {"padding", options.padding}};
  if (options.padding == "explicit")
    attrs.set("pads", std::vector<int64_t>(options.pads.begin(), options.pads.end()));
  return attrs;
}

PoolForm pool_form(const char* op, const Shape& x, const Metas& in, const Attrs& attrs) {
  constexpr Dim kLargestSide = Dim{1} << 15;
  if (x.rank() != 4) reject(op, "images (B, H, W, C)", in, attrs);
  checked(op, {{Dtype::float64, x}});
  const std::vector<int64_t>& pool = attrs.list("pool_size");
  if (pool.size() != 2 || std::min(pool[0], pool[1]) < 1 ||
      std::max(pool[0], pool[1]) > kLargestSide)
    reject(op, "a pool_size of two integers from 1 to " + std::to_string(kLargestSide), in, attrs);
  if (attrs.has("dilations")) reject(op, "no dilations", in, attrs);
  return {x[0], x[3], window_of(op, x[1], x[2], pool[0], pool[1], in, attrs)};
}

Attrs PoolCase::attrs() const {
  Attrs attrs{{"pool_size", pool}, {"strides", strides}, {"padding", std::string(padding)}};
  if (!pads.empty()) attrs.set("pads", pads);
  return attrs;
}

}  // namespace pl

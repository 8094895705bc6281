// Vision transformers: the image in patches, a class token before them, learned positions, pre-norm
// blocks, a head on the class token. Weights are named as those of gpt.h:
//   patches/kernel (P, P, C, D), class_token/token (1, D), positions/embeddings (1 + T, D),
//   block_0/ln_1/gamma (D,), block_0/attn/qkv/kernel (D, 3 D), block_0/attn/proj/kernel (D, D),
//   block_0/ln_2/gamma (D,), block_0/mlp/fc/kernel (D, M), block_0/mlp/proj/kernel (M, D), ...,
//   ln_f/gamma (D,), head/kernel (D, classes); every kernel has a bias beside it, every gamma a
//   beta.
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

struct VitConfig {
  int64_t patch, layers, width, heads, mlp;
};

inline constexpr VitConfig kVitB16{16, 12, 768, 12, 3072};

// image (H, W, C), an Input() whose height and width are multiples of the patch. Result:
// probabilities (classes,).
Symbolic vit(const VitConfig& config, const Symbolic& image, int64_t classes);

Network vit_network(const VitConfig& config, const Shape& input, int64_t classes);

}  // namespace pl

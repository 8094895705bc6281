// GPT-2 and its small sister: token and position embeddings, pre-norm blocks, a head that is the
// token table again. Weights are named so that those of other programs map at sight:
//   wte/embeddings (V, D), wpe/embeddings (T, D),
//   block_0/ln_1/gamma (D,), block_0/attn/qkv/kernel (D, 3 D), block_0/attn/proj/kernel (D, D),
//   block_0/ln_2/gamma (D,), block_0/mlp/fc/kernel (D, 4 D), block_0/mlp/proj/kernel (4 D, D), ...,
//   ln_f/gamma (D,); every kernel has a bias beside it, every gamma a beta.
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

struct GptConfig {
  int64_t layers, width, heads, vocabulary;
};

inline constexpr GptConfig kGptTiny{4, 256, 4, 1024};
// The vocabulary of 50,257 is padded to a multiple of 128.
inline constexpr GptConfig kGpt2{12, 768, 12, 50304};
inline constexpr GptConfig kGpt2Medium{24, 1024, 16, 50304};
inline constexpr GptConfig kGpt2Large{36, 1280, 20, 50304};
inline constexpr GptConfig kGpt2Xl{48, 1600, 25, 50304};

// tokens (T,), an Input(). Result: logits (T, vocabulary) of the next token at each position.
Symbolic gpt(const GptConfig& config, const Symbolic& tokens);

Network gpt_network(const GptConfig& config, const Shape& input);

}  // namespace pl

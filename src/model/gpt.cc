#include "model/gpt.h"

#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "model/layers.h"

namespace pl {
namespace {

constexpr double kEpsilon = 1e-5;  // of layer norms
constexpr double kWidth = 0.02;    // standard deviation of initial weights

std::string normal(double width) {
  char text[64];
  std::snprintf(text, sizeof text, "random_normal:%.9g", width);
  return text;
}

LayerRef norm(const std::string& name) {
  return LayerNormalization({.epsilon = kEpsilon, .name = name});
}

LayerRef dense(int64_t units, double width, const std::string& name,
               const std::string& activation = "linear") {
  return Dense(units,
               {.activation = activation, .kernel_initializer = normal(width), .name = name});
}

// x (T, D). What each half adds to x starts smaller the deeper the network is.
Symbolic block(const GptConfig& config, const std::string& name, Symbolic x) {
  const double residual = kWidth / std::sqrt(2.0 * static_cast<double>(config.layers));
  const Symbolic qkv = dense(3 * config.width, kWidth, name + "/attn/qkv")(norm(name + "/ln_1")(x));
  const Symbolic mixed =
      PackedAttention(config.heads, {.causal = true, .name = name + "/attn/heads"})(qkv);
  x = Add(name + "/attn/add")({x, dense(config.width, residual, name + "/attn/proj")(mixed)});
  const Symbolic hidden =
      dense(4 * config.width, kWidth, name + "/mlp/fc", "gelu_tanh")(norm(name + "/ln_2")(x));
  return Add(name + "/mlp/add")({x, dense(config.width, residual, name + "/mlp/proj")(hidden)});
}

}  // namespace

Symbolic gpt(const GptConfig& config, const Symbolic& tokens) {
  if (tokens.shape().rank() != 1)
    throw UserError("[gpt] expected samples of tokens (T,), received " + tokens.shape().text() +
                    "; give one number, --input T");
  const LayerRef wte = Embedding(config.vocabulary, config.width,
                                 {.embeddings_initializer = normal(kWidth), .name = "wte"});
  Symbolic x = wte(tokens);
  x = PositionalEmbedding({.embeddings_initializer = normal(kWidth), .name = "wpe"})(x);
  for (int64_t i = 0; i < config.layers; ++i) x = block(config, "block_" + std::to_string(i), x);
  return TiedDense(wte, "head")(norm("ln_f")(x));
}

Network gpt_network(const GptConfig& config, const Shape& input) {
  const Symbolic tokens = Input(input);
  return Network({tokens}, {gpt(config, tokens)});
}

}  // namespace pl

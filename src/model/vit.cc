#include "model/vit.h"

#include "base/error.h"
#include "model/layers.h"

namespace pl {
namespace {

constexpr double kEpsilon = 1e-6;                      // of layer norms
constexpr const char* kNormal = "random_normal:0.02";  // initial weights

LayerRef norm(const std::string& name) {
  return LayerNormalization({.epsilon = kEpsilon, .name = name});
}

LayerRef dense(int64_t units, const std::string& name, const std::string& activation = "linear") {
  return Dense(units, {.activation = activation, .kernel_initializer = kNormal, .name = name});
}

// x (1 + T, D)
Symbolic block(const VitConfig& config, const std::string& name, Symbolic x) {
  const Symbolic qkv = dense(3 * config.width, name + "/attn/qkv")(norm(name + "/ln_1")(x));
  const Symbolic mixed =
      PackedAttention(config.heads, {.causal = false, .name = name + "/attn/heads"})(qkv);
  x = Add(name + "/attn/add")({x, dense(config.width, name + "/attn/proj")(mixed)});
  const Symbolic hidden = dense(config.mlp, name + "/mlp/fc", "gelu")(norm(name + "/ln_2")(x));
  return Add(name + "/mlp/add")({x, dense(config.width, name + "/mlp/proj")(hidden)});
}

}  // namespace

Symbolic vit(const VitConfig& config, const Symbolic& image, int64_t classes) {
  const Shape& shape = image.shape();
  const Dim patch = config.patch;
  if (shape.rank() != 3 || shape[0] < patch || shape[1] < patch || shape[0] % patch != 0 ||
      shape[1] % patch != 0)
    throw UserError("[vit] expected images (H, W, C) with H and W multiples of " +
                    std::to_string(patch) + ", received " + shape.text() +
                    "; give such a size, --input HxWxC");
  Symbolic x = Conv2D(config.width, patch,
                      {.strides = patch, .kernel_initializer = kNormal, .name = "patches"})(image);
  x = Reshape({-1, config.width}, "sequence")(x);  // (T, D)
  x = ClassToken({.name = "class_token"})(x);
  x = PositionalEmbedding({.embeddings_initializer = kNormal, .name = "positions"})(x);
  for (int64_t i = 0; i < config.layers; ++i) x = block(config, "block_" + std::to_string(i), x);
  // A layer norm works position by position: only the class token's is needed.
  x = norm("ln_f")(TakePosition(0, "take_class")(x));
  return dense(classes, "head", "softmax")(x);
}

Network vit_network(const VitConfig& config, const Shape& input, int64_t classes) {
  const Symbolic image = Input(input);
  return Network({image}, {vit(config, image, classes)});
}

}  // namespace pl

// MultiHeadAttention with Keras's weights, and PackedAttention without any.
#include <cmath>

#include "base/error.h"
#include "model/initializer.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

class MultiHeadAttentionLayer final : public Layer {
 public:
  MultiHeadAttentionLayer(int64_t heads, int64_t key_dim, MultiHeadAttentionOptions options)
      : heads_(heads), key_dim_(key_dim), options_(std::move(options)) {
    value_dim_ = options_.value_dim == 0 ? key_dim : options_.value_dim;
    if (heads <= 0 || key_dim <= 0 || value_dim_ <= 0)
      throw UserError(
          "[MultiHeadAttention] expected positive num_heads, key_dim and value_dim, received " +
          std::to_string(heads) + ", " + std::to_string(key_dim) + " and " +
          std::to_string(value_dim_));
    if (!(options_.dropout >= 0 && options_.dropout < 1))
      throw UserError("[MultiHeadAttention] dropout: expected 0 <= dropout < 1, received " +
                      std::to_string(options_.dropout));
    check_initializer(options_.kernel_initializer);
    check_initializer(options_.bias_initializer);
    name = options_.name;
  }
  const char* kind() const override { return "MultiHeadAttention"; }
  std::string config() const override {
    return std::to_string(heads_) + " heads of " + std::to_string(key_dim_);
  }

  // Inputs: query (T, D), value (S, Dv), key (S, Dk).
  Shape build(const std::vector<Shape>& in) override {
    bool good = !in.empty() && in.size() <= 3;
    for (const Shape& shape : in) good = good && shape.rank() == 2;
    if (!good)
      throw UserError(
          "expected a query, a value and perhaps a key, each (positions, features), received " +
          (in.empty() ? "nothing" : in[0].text()));
    const Shape &query = in[0], &value = in.size() > 1 ? in[1] : query,
                &key = in.size() > 2 ? in[2] : value;
    if (key[0] != value[0])
      throw UserError("expected as many positions in key as in value, received " + key.text() +
                      " and " + value.text());
    if (weights_.empty()) {
      add_projection("query", query[1], key_dim_);
      add_projection("key", key[1], key_dim_);
      add_projection("value", value[1], value_dim_);
      add_weight("attention_output/kernel", Shape{heads_, value_dim_, query[1]},
                 options_.kernel_initializer);
      if (options_.use_bias)
        add_weight("attention_output/bias", Shape{query[1]}, options_.bias_initializer);
    }
    const size_t step = options_.use_bias ? 2 : 1;
    if (weights_[0].shape[0] != query[1] || weights_[step].shape[0] != key[1] ||
        weights_[2 * step].shape[0] != value[1])
      throw UserError("expected features as in its first call, received query " + query.text() +
                      ", value " + value.text() + " and key " + key.text());
    return query;
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& query = call.in[0];
    const Tensor& value = call.in.size() > 1 ? call.in[1] : query;
    const Tensor& key = call.in.size() > 2 ? call.in[2] : value;
    const Tensor q = project(call, 0, query, heads_ * key_dim_);  // (B, T, H * d)
    const Tensor k = project(call, 1, key, heads_ * key_dim_);    // (B, S, H * d)
    const Tensor v = project(call, 2, value, heads_ * value_dim_);
    const bool drop = call.training && options_.dropout > 0;
    const AttentionOptions options{.heads = static_cast<int>(heads_),
                                   .causal = options_.use_causal_mask};
    const Tensor mixed = drop || value_dim_ != key_dim_ ? attend_step_by_step(call, q, k, v)
                                                        : attention(q, k, v, options);
    return project(call, 3, mixed, query.shape()[2]);
  }

 private:
  void add_projection(const std::string& part, Dim features, Dim size) {
    add_weight(part + "/kernel", Shape{features, heads_, size}, options_.kernel_initializer);
    if (options_.use_bias)
      add_weight(part + "/bias", Shape{heads_, size}, options_.bias_initializer);
  }

  // x (B, T, ...) through projection number `part`, as a matrix with `width` columns.
  Tensor project(const LayerCall& call, size_t part, const Tensor& x, Dim width) const {
    const size_t at = part * (options_.use_bias ? 2 : 1);
    const Tensor kernel = reshape(call.weights[at], {x.shape()[2], width});
    const Tensor bias =
        options_.use_bias ? reshape(call.weights[at + 1], std::vector<Dim>{width}) : Tensor();
    return matmul(x, kernel, {}, bias);
  }

  // For what the attention op does not have: dropout of the weights, and values of another size.
  Tensor attend_step_by_step(const LayerCall& call, const Tensor& q, const Tensor& k,
                             const Tensor& v) const {
    const Dim batch = q.shape()[0], queries = q.shape()[1];
    auto by_head = [&](const Tensor& x) {  // (B, T, H * d) to (B, H, T, d)
      return transpose(reshape(x, {batch, x.shape()[1], heads_, x.shape()[2] / heads_}),
                       {0, 2, 1, 3});
    };
    const double factor = 1 / std::sqrt(static_cast<double>(key_dim_));
    Tensor scores =
        scale(batch_matmul(by_head(q), by_head(k), {.transpose_b = true}), factor);  // (B, H, T, S)
    if (options_.use_causal_mask) scores = causal_mask(scores);
    Tensor weights = softmax(scores);
    if (call.training && options_.dropout > 0)
      weights = dropout(weights, call.step_params, options_.dropout, call.stream);
    const Tensor mixed = transpose(batch_matmul(weights, by_head(v)), {0, 2, 1, 3});
    return reshape(mixed, {batch, queries, heads_ * value_dim_});
  }

  int64_t heads_, key_dim_, value_dim_;
  MultiHeadAttentionOptions options_;
};

class PackedAttentionLayer final : public Layer {
 public:
  PackedAttentionLayer(int64_t heads, PackedAttentionOptions options)
      : heads_(heads), options_(std::move(options)) {
    if (heads <= 0)
      throw UserError("[PackedAttention] num_heads: expected a positive number, received " +
                      std::to_string(heads));
    name = options_.name;
  }
  const char* kind() const override { return "PackedAttention"; }
  std::string config() const override { return std::to_string(heads_) + " heads"; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 2 || in[0][1] % (3 * heads_) != 0)
      throw UserError("expected samples (positions, 3 * D) with D a multiple of " +
                      std::to_string(heads_) + " heads, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    return Shape{in[0][0], in[0][1] / 3};
  }
  Tensor call(const LayerCall& call) const override {
    return attention(call.in[0], {.heads = static_cast<int>(heads_), .causal = options_.causal});
  }

 private:
  int64_t heads_;
  PackedAttentionOptions options_;
};

}  // namespace

LayerRef MultiHeadAttention(int64_t num_heads, int64_t key_dim, MultiHeadAttentionOptions options) {
  return LayerRef(
      std::make_shared<MultiHeadAttentionLayer>(num_heads, key_dim, std::move(options)));
}
LayerRef PackedAttention(int64_t num_heads, PackedAttentionOptions options) {
  return LayerRef(std::make_shared<PackedAttentionLayer>(num_heads, std::move(options)));
}

}  // namespace pl

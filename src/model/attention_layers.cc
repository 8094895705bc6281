// MultiHeadAttention and GroupedQueryAttention with Keras's weights, and PackedAttention without
// any.
#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "model/initializer.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

// What the two layers with weights have in common; kv_heads divides heads.
struct Heads {
  const char* kind;
  int64_t heads, kv_heads, key_dim, value_dim;
};

// Weights have Keras's names and shapes: query/kernel (D, heads, key_dim), key/kernel (D, kv_heads,
// key_dim), ..., attention_output/kernel (heads, value_dim, D).
class AttentionLayer final : public PlainLayer {
 public:
  AttentionLayer(Heads form, MultiHeadAttentionOptions options)
      : form_(form), options_(std::move(options)) {
    const std::string kind = std::string("[") + form_.kind + "] ";
    if (form_.heads <= 0 || form_.kv_heads <= 0 || form_.key_dim <= 0 || form_.value_dim <= 0)
      throw UserError(kind + "expected positive num_heads, key_dim and value_dim, received " +
                      std::to_string(form_.heads) + ", " + std::to_string(form_.key_dim) + " and " +
                      std::to_string(form_.value_dim));
    if (form_.heads % form_.kv_heads != 0)
      throw UserError(kind +
                      "expected num_query_heads divisible by num_key_value_heads, received " +
                      std::to_string(form_.heads) + " and " + std::to_string(form_.kv_heads));
    if (!(options_.dropout >= 0 && options_.dropout < 1))
      throw UserError(kind + "dropout: expected 0 <= dropout < 1, received " +
                      number_text(options_.dropout));
    if (options_.output_shape < 0)
      throw UserError(kind + "output_shape: expected a number from 0, received " +
                      std::to_string(options_.output_shape));
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return form_.kind; }
  bool supports_masking() const override { return true; }
  std::string config() const override {
    return std::to_string(form_.heads) + " heads of " + std::to_string(form_.key_dim);
  }

  // Inputs: query (T, D), value (S, Dv), key (S, Dk), attention mask (T, S), (T, 1) or (1, S).
  Shape build(const std::vector<Shape>& in) override {
    bool good = !in.empty() && in.size() <= 4;
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
    auto fits = [](Dim given, Dim wanted) { return given == wanted || given == 1; };
    if (in.size() > 3 && !(fits(in[3][0], query[0]) && fits(in[3][1], value[0])))
      throw UserError("expected an attention mask (queries, keys), " +
                      Shape{query[0], value[0]}.text() + " or 1 in either place, received " +
                      in[3].text());
    if (weights_.empty()) {
      add_projection("query", query[1], form_.heads, form_.key_dim);
      add_projection("key", key[1], form_.kv_heads, form_.key_dim);
      add_projection("value", value[1], form_.kv_heads, form_.value_dim);
      const Dim out = out_features(query[1]);
      add_kernel("attention_output", Shape{form_.heads, form_.value_dim, out},
                 form_.heads * form_.value_dim, out);
      if (options_.use_bias) add_weight("attention_output/bias", Shape{out}, bias_rules(options_));
    }
    const size_t step = options_.use_bias ? 2 : 1;
    if (weights_[0].shape[0] != query[1] || weights_[step].shape[0] != key[1] ||
        weights_[2 * step].shape[0] != value[1])
      throw UserError("expected features as in its first call, received query " + query.text() +
                      ", value " + value.text() + " and key " + key.text());
    return {query[0], out_features(query[1])};
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& query = call.in[0];
    const Tensor& value = call.in.size() > 1 ? call.in[1] : query;
    const Tensor& key = call.in.size() > 2 ? call.in[2] : value;
    const Tensor q = project(call, 0, query, form_.heads * form_.key_dim);   // (B, T, H * d)
    const Tensor k = project(call, 1, key, form_.kv_heads * form_.key_dim);  // (B, S, G * d)
    const Tensor v = project(call, 2, value, form_.kv_heads * form_.value_dim);
    const Tensor allowed = allowed_by(call);
    const bool plain = !(call.training && options_.dropout > 0) && !allowed.defined() &&
                       form_.value_dim == form_.key_dim;
    const Tensor mixed = plain ? attend(q, k, v)
                               : attend_step_by_step(call, q, repeated(k, form_.key_dim),
                                                     repeated(v, form_.value_dim), allowed);
    return project(call, 3, mixed, out_features(query.shape()[2]));
  }

 private:
  Dim out_features(Dim query) const {
    return options_.output_shape > 0 ? options_.output_shape : query;
  }
  void add_projection(const std::string& part, Dim features, Dim heads, Dim size) {
    add_kernel(part, Shape{features, heads, size}, features, heads * size);
    if (options_.use_bias) add_weight(part + "/bias", Shape{heads, size}, bias_rules(options_));
  }
  // As the matrix (fan_in, fan_out) that it is.
  void add_kernel(const std::string& part, Shape shape, Dim fan_in, Dim fan_out) {
    WeightRules rules = kernel_rules(options_);
    rules.initializer = with_fans(rules.initializer, fan_in, fan_out);
    add_weight(part + "/kernel", std::move(shape), rules);
  }

  // x (B, T, ...) through projection number `part`, as a matrix with `width` columns.
  Tensor project(const LayerCall& call, size_t part, const Tensor& x, Dim width) const {
    const size_t at = part * (options_.use_bias ? 2 : 1);
    const Tensor kernel = reshape(call.weights[at], {x.shape()[2], width});
    const Tensor bias =
        options_.use_bias ? reshape(call.weights[at + 1], std::vector<Dim>{width}) : Tensor();
    return matmul(x, kernel, {}, bias);
  }

  // x (B, S, G * d) with each head as often as queries use it: (B, S, H * d).
  Tensor repeated(const Tensor& x, Dim size) const {
    const Dim each = form_.heads / form_.kv_heads;
    if (each == 1) return x;
    const Shape& s = x.shape();
    const Tensor heads = reshape(x, {s[0], s[1], form_.kv_heads, 1, size});
    return reshape(broadcast_to(heads, Shape{s[0], s[1], form_.kv_heads, each, size}),
                   {s[0], s[1], form_.heads * size});
  }

  // Heads that share keys are so many more queries, unless these are told apart by their place.
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Dim each = form_.heads / form_.kv_heads, groups = form_.kv_heads, size = form_.key_dim;
    if (each == 1 || options_.use_causal_mask)
      return attention(
          q, repeated(k, size), repeated(v, size),
          {.heads = static_cast<int>(form_.heads), .causal = options_.use_causal_mask});
    const Dim batch = q.shape()[0], queries = q.shape()[1];
    const Tensor many =  // (B, T, G, each, d) to (B, T, each, G, d)
        transpose(reshape(q, {batch, queries, groups, each, size}), {0, 1, 3, 2, 4});
    const Tensor mixed = attention(reshape(many, {batch, queries * each, groups * size}), k, v,
                                   {.heads = static_cast<int>(groups)});
    const Tensor back =
        transpose(reshape(mixed, {batch, queries, each, groups, size}), {0, 1, 3, 2, 4});
    return reshape(back, {batch, queries, form_.heads * size});
  }

  // (B, 1, T, S): 1 where a query may see a key by the masks of query, value and key, and by their
  // order; undefined without masks.
  Tensor allowed_by(const LayerCall& call) const {
    const Dtype dtype = call.in[0].dtype();
    Tensor result;
    for (size_t i = 0; i < 3; ++i) {
      const Tensor mask = call.mask(i == 1 && call.in.size() == 1 ? 0 : i);
      if (!mask.defined()) continue;
      const Dim batch = mask.shape()[0], count = mask.shape()[1];
      const Tensor counts = i == 0 ? reshape(cast(mask, dtype), {batch, 1, count, 1})
                                   : reshape(cast(mask, dtype), {batch, 1, 1, count});
      result = result.defined() ? multiply(result, counts) : counts;
    }
    if (call.in.size() > 3) {
      const Shape& s = call.in[3].shape();
      const Tensor counts =
          reshape(cast(cast(call.in[3], Dtype::boolean), dtype), {s[0], 1, s[1], s[2]});
      result = result.defined() ? multiply(result, counts) : counts;
    }
    if (!result.defined() || !options_.use_causal_mask) return result;
    const Dim queries = call.in[0].shape()[1],
              keys = call.in[call.in.size() > 1 ? 1 : 0].shape()[1];
    const Tensor past = causal_mask_gradient(fill(Shape{queries, keys}, 1, dtype));
    return multiply(result, reshape(past, {1, 1, queries, keys}));
  }

  // For what the attention op does not have: masks, dropout of the weights, and values of another
  // size. q, k and v have `heads` heads.
  Tensor attend_step_by_step(const LayerCall& call, const Tensor& q, const Tensor& k,
                             const Tensor& v, const Tensor& allowed) const {
    const Dim batch = q.shape()[0], queries = q.shape()[1], heads = form_.heads;
    auto by_head = [&](const Tensor& x) {  // (B, T, H * d) to (B, H, T, d)
      return transpose(reshape(x, {batch, x.shape()[1], heads, x.shape()[2] / heads}),
                       {0, 2, 1, 3});
    };
    const double factor = 1 / std::sqrt(static_cast<double>(form_.key_dim));
    Tensor scores =
        scale(batch_matmul(by_head(q), by_head(k), {.transpose_b = true}), factor);  // (B, H, T, S)
    // Keras puts -1e9 where a key is not seen: a query that sees none has the mean of all values.
    // A layer with dropout takes the weight away behind the softmax, in Keras as here.
    const double far = scores.dtype() == Dtype::float16 ? 3e4 : 1e9;
    if (allowed.defined())
      scores = add(multiply(scores, allowed), scale(allowed, far, -far));
    else if (options_.use_causal_mask)
      scores = causal_mask(scores);
    Tensor weights = softmax(scores);
    if (allowed.defined() && options_.dropout > 0) weights = multiply(weights, allowed);
    if (call.training && options_.dropout > 0)
      weights = dropout(weights, call.step_params, options_.dropout, call.stream);
    const Tensor mixed = transpose(batch_matmul(weights, by_head(v)), {0, 2, 1, 3});
    return reshape(mixed, {batch, queries, heads * form_.value_dim});
  }

  Heads form_;
  MultiHeadAttentionOptions options_;
};

class PackedAttentionLayer final : public PlainLayer {
 public:
  PackedAttentionLayer(int64_t heads, PackedAttentionOptions options)
      : heads_(heads), options_(std::move(options)) {
    if (heads <= 0)
      throw UserError("[PackedAttention] num_heads: expected a positive number, received " +
                      std::to_string(heads));
    set_common(*this, options_);
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
  const int64_t value_dim = options.value_dim == 0 ? key_dim : options.value_dim;
  return LayerRef(std::make_shared<AttentionLayer>(
      Heads{"MultiHeadAttention", num_heads, num_heads, key_dim, value_dim}, std::move(options)));
}
LayerRef GroupedQueryAttention(int64_t head_dim, int64_t num_query_heads,
                               int64_t num_key_value_heads, GroupedQueryAttentionOptions options) {
  MultiHeadAttentionOptions same{.dropout = options.dropout,
                                 .use_bias = options.use_bias,
                                 .use_causal_mask = options.use_causal_mask,
                                 .kernel_initializer = options.kernel_initializer,
                                 .bias_initializer = options.bias_initializer,
                                 .kernel_regularizer = options.kernel_regularizer,
                                 .bias_regularizer = options.bias_regularizer,
                                 .activity_regularizer = options.activity_regularizer,
                                 .kernel_constraint = options.kernel_constraint,
                                 .bias_constraint = options.bias_constraint,
                                 .seed = options.seed,
                                 .name = options.name,
                                 .dtype = options.dtype,
                                 .trainable = options.trainable};
  return LayerRef(std::make_shared<AttentionLayer>(
      Heads{"GroupedQueryAttention", num_query_heads, num_key_value_heads, head_dim, head_dim},
      std::move(same)));
}
LayerRef PackedAttention(int64_t num_heads, PackedAttentionOptions options) {
  return LayerRef(std::make_shared<PackedAttentionLayer>(num_heads, std::move(options)));
}

}  // namespace pl

// Attention and AdditiveAttention: Keras's layers without heads and projections.
#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

enum class Score : uint8_t { dot, concat, additive };

// Inputs: query (T, D), value (S, E) and perhaps key (S, D). Scores (B, T, S).
class DotAttentionLayer final : public PlainLayer {
 public:
  DotAttentionLayer(Score score, AttentionLayerOptions options)
      : score_(score), options_(std::move(options)) {
    if (!(options_.dropout >= 0 && options_.dropout < 1))
      throw UserError("[" + std::string(kind()) +
                      "] dropout: expected 0 <= dropout < 1, received " +
                      number_text(options_.dropout));
    set_common(*this, options_);
  }
  const char* kind() const override {
    return score_ == Score::additive ? "AdditiveAttention" : "Attention";
  }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    bool good = in.size() == 2 || in.size() == 3;
    for (const Shape& shape : in) good = good && shape.rank() == 2;
    if (!good)
      throw UserError("expected a query, a value and perhaps a key, each (positions, features), " +
                      std::string("received ") + std::to_string(in.size()) + " inputs" +
                      (in.empty() ? "" : ", " + in[0].text() + " first"));
    const Shape &query = in[0], &value = in[1], &key = in.back();
    if (key[0] != value[0] || key[1] != query[1])
      throw UserError(
          "expected a key with the query's features and the value's positions, received " +
          query.text() + ", " + value.text() + " and " + key.text());
    if (weights_.empty()) {
      if (options_.use_scale && score_ == Score::additive)
        add_weight("scale", Shape{query[1]}, "glorot_uniform");
      if (options_.use_scale && score_ != Score::additive) add_weight("scale", Shape{}, "ones");
      if (score_ == Score::concat) add_weight("concat_score_weight", Shape{}, "ones");
    }
    return {query[0], value[1]};
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor &query = call.in[0], &value = call.in[1], &key = call.in[call.in.size() - 1];
    Tensor scores = scores_of(call, query, key);
    // Keras takes 1e9 from scores that do not count: a row in which none does is their softmax.
    const Dtype dtype = scores.dtype();
    const double far = dtype == Dtype::float16 ? 65504 : 1e9;
    Tensor seen;
    if (const Tensor mask = call.mask(1); mask.defined())
      seen = reshape(cast(mask, dtype), {mask.shape()[0], 1, mask.shape()[1]});
    if (options_.use_causal_mask) {
      const Tensor past =
          reshape(causal_mask_gradient(fill(Shape{query.shape()[1], key.shape()[1]}, 1, dtype)),
                  {1, query.shape()[1], key.shape()[1]});
      seen = seen.defined() ? multiply(seen, past) : past;
    }
    if (seen.defined()) scores = add(scores, scale(seen, far, -far));
    Tensor weights = softmax(scores);
    if (call.training && options_.dropout > 0)
      weights = dropout(weights, call.step_params, options_.dropout, call.stream);
    const Tensor mixed = batch_matmul(weights, value);
    const Tensor mask = call.mask(0);
    if (!mask.defined()) return mixed;
    return multiply(mixed, reshape(cast(mask, dtype), {mask.shape()[0], mask.shape()[1], 1}));
  }

 private:
  Tensor scores_of(const LayerCall& call, const Tensor& query, const Tensor& key) const {
    const bool scaled = options_.use_scale;
    const Tensor factor = scaled ? cast(call.weights[0], query.dtype()) : Tensor();
    if (score_ == Score::dot) {
      const Tensor scores = batch_matmul(query, key, {.transpose_b = true});
      return scaled ? multiply(scores, factor) : scores;
    }
    const Shape &q = query.shape(), &k = key.shape();
    Tensor sum = add(reshape(query, {q[0], q[1], 1, q[2]}),
                     reshape(key, {k[0], 1, k[1], k[2]}));  // (B, T, S, D)
    if (score_ == Score::concat && scaled) sum = multiply(sum, factor);
    sum = tanh(sum);
    if (score_ == Score::additive && scaled) sum = multiply(sum, factor);
    const Tensor scores = reduce_sum(sum, {3});
    if (score_ == Score::additive) return scores;
    return multiply(scores, cast(call.weights[call.weights.size() - 1], query.dtype()));
  }

  Score score_;
  AttentionLayerOptions options_;
};

}  // namespace

LayerRef Attention(AttentionLayerOptions options) {
  if (options.score_mode != "dot" && options.score_mode != "concat")
    throw UserError("[Attention] score_mode: expected 'dot' or 'concat', received '" +
                    options.score_mode + "'");
  const Score score = options.score_mode == "dot" ? Score::dot : Score::concat;
  return std::make_shared<DotAttentionLayer>(score, std::move(options));
}

LayerRef AdditiveAttention(AdditiveAttentionOptions o) {
  return std::make_shared<DotAttentionLayer>(
      Score::additive, AttentionLayerOptions{.use_scale = o.use_scale,
                                             .dropout = o.dropout,
                                             .seed = o.seed,
                                             .use_causal_mask = o.use_causal_mask,
                                             .name = o.name,
                                             .dtype = o.dtype,
                                             .trainable = o.trainable});
}

}  // namespace pl

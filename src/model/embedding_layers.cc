// Embedding, PositionalEmbedding, and TiedDense, which uses an Embedding's table once more.
#include "base/error.h"
#include "model/initializer.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

class EmbeddingLayer final : public PlainLayer {
 public:
  EmbeddingLayer(int64_t input_dim, int64_t output_dim, EmbeddingOptions options)
      : input_dim_(input_dim), output_dim_(output_dim), options_(std::move(options)) {
    for (int64_t dim : {input_dim, output_dim})
      if (dim <= 0)
        throw UserError("[Embedding] expected a positive input_dim and output_dim, received " +
                        std::to_string(input_dim) + " and " + std::to_string(output_dim));
    check_rules(rules());
    set_common(*this, options_);
  }
  const char* kind() const override { return "Embedding"; }
  // True where the token is not 0.
  Tensor compute_mask(const LayerCall& call) const override {
    return options_.mask_zero ? cast(call.in[0], Dtype::boolean) : Tensor();
  }
  std::string config() const override {
    return std::to_string(input_dim_) + " to " + std::to_string(output_dim_);
  }
  int64_t vocabulary() const override { return input_dim_; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input of tokens, received " + std::to_string(in.size()));
    if (weights_.empty()) add_weight("embeddings", Shape{input_dim_, output_dim_}, rules());
    std::vector<Dim> dims = in[0].dims();
    dims.push_back(output_dim_);
    return Shape(std::move(dims));
  }
  Tensor call(const LayerCall& call) const override {
    return embedding(call.weights[0], call.in[0]);
  }

 private:
  WeightRules rules() const {
    return {options_.embeddings_initializer, options_.embeddings_regularizer,
            options_.embeddings_constraint};
  }

  int64_t input_dim_, output_dim_;
  EmbeddingOptions options_;
};

class PositionalEmbeddingLayer final : public PlainLayer {
 public:
  explicit PositionalEmbeddingLayer(PositionalEmbeddingOptions options)
      : options_(std::move(options)) {
    check_initializer(options_.embeddings_initializer);
    set_common(*this, options_);
  }
  const char* kind() const override { return "PositionalEmbedding"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 2)
      throw UserError("expected samples (positions, features), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape table{in[0][in[0].rank() - 2], in[0].back()};
    if (!weights_.empty() && weights_[0].shape != table)
      throw UserError("expected positions and features " + weights_[0].shape.text() +
                      " as in its first call, received " + in[0].text());
    if (weights_.empty()) add_weight("embeddings", table, options_.embeddings_initializer);
    return in[0];
  }
  Tensor call(const LayerCall& call) const override { return add(call.in[0], call.weights[0]); }

 private:
  PositionalEmbeddingOptions options_;
};

class TiedDenseLayer final : public PlainLayer {
 public:
  explicit TiedDenseLayer(std::shared_ptr<const Layer> embedding)
      : embedding_(std::move(embedding)) {
    if (std::string(embedding_->kind()) != "Embedding")
      throw UserError("[TiedDense] expected an Embedding, received " +
                      std::string(embedding_->kind()));
  }
  const char* kind() const override { return "TiedDense"; }

  Shape build(const std::vector<Shape>& in) override {
    if (embedding_->weights().empty())
      throw UserError("expected its Embedding to be called before it");
    const Shape& table = embedding_->weights()[0].shape;
    if (in.size() != 1 || in[0].rank() < 1 || in[0].back() != table[1])
      throw UserError("expected one input with " + std::to_string(table[1]) +
                      " features, as its Embedding has, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    if (weights_.empty()) share_weight(embedding_, 0);
    Shape out = in[0];
    out[out.rank() - 1] = table[0];
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    return matmul(call.in[0], call.weights[0], {.transpose_b = true});
  }

 private:
  std::shared_ptr<const Layer> embedding_;
};

}  // namespace

LayerRef Embedding(int64_t input_dim, int64_t output_dim, EmbeddingOptions options) {
  return LayerRef(std::make_shared<EmbeddingLayer>(input_dim, output_dim, std::move(options)));
}
LayerRef PositionalEmbedding(PositionalEmbeddingOptions options) {
  return LayerRef(std::make_shared<PositionalEmbeddingLayer>(std::move(options)));
}
LayerRef TiedDense(const LayerRef& embedding, std::string name) {
  auto layer = std::make_shared<TiedDenseLayer>(embedding.get());
  layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

}  // namespace pl

// Random training steps over a batch of samples, so that they split: dense layers with tied
// weights, skips, branches, dropout, windows, normalisation, tokens and attention, samples that
// share dimension 0 with positions, values made of weights alone, updates early and late, kept
// rows, views and sums. Equal seeds give equal graphs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test {

class RandomStep {
 public:
  static constexpr int kClasses = 4;

  RandomStep(uint64_t seed, Dtype dtype, int64_t batch, int nodes, double mixing = 0)
      : numbers_(seed), scope_(recorder_), dtype_(dtype), batch_(batch) {
    constexpr Dim widths[] = {4, 6, 8, 12};
    const int inputs = 1 + numbers_.below(2);
    for (int i = 0; i < inputs; ++i) {
      const Meta meta{dtype, Shape{batch, widths[numbers_.below(4)]}};
      pool_.push_back(recorder_.input("x" + std::to_string(i), meta, true));
    }
    if (numbers_.chance(0.5))
      labels_ = recorder_.input("labels", {Dtype::int32, Shape{batch}}, true);
    params_ = recorder_.input("step_params", step_params_meta(), false);
    if (numbers_.chance(0.3)) {  // two tokens a sample
      const Tensor tokens = recorder_.input("tokens", {Dtype::int32, Shape{batch, 2}}, true);
      const Dim each = widths[numbers_.below(2)];
      push(reshape(embedding(variable(Shape{kClasses, each}), tokens), {batch, 2 * each}));
    }
    for (int n = 0; n < nodes; ++n) {
      PathScope path(&recorder_, "layer" + std::to_string(n));
      if (numbers_.chance(mixing))
        mix();
      else
        grow();
      if (numbers_.chance(0.05)) update_early();
    }
    finish();
    keep_some();
  }
  Graph take() {
    check_graph(recorder_.graph());
    return recorder_.take();
  }

 private:
  const Tensor& pick() {
    const int size = static_cast<int>(pool_.size());
    const int from = numbers_.chance(0.6) ? std::max(0, size - 3) : 0;
    return pool_[index(from + numbers_.below(size - from))];
  }
  void push(const Tensor& tensor) { pool_.push_back(tensor); }

  // One of its shape that is there, or a new one: tied weights.
  Tensor variable(const Shape& shape) {
    std::vector<Tensor> fit;
    for (const Tensor& w : variables_)
      if (w.shape() == shape) fit.push_back(w);
    if (!fit.empty() && numbers_.chance(0.5))
      return fit[index(numbers_.below(static_cast<int>(fit.size())))];
    variables_.push_back(recorder_.variable("w" + std::to_string(variables_.size()),
                                            {dtype_, shape}, Category::parameters));
    return variables_.back();
  }

  void grow() {
    const Tensor x = pick();
    const bool even = width(x) % 2 == 0;
    switch (numbers_.below(even ? 14 : 12)) {
      case 0:
        return push(relu(x));
      case 1:
        return push(tanh(x));
      case 2:
        return push(dropout(x, params_, 0.25, ++stream_));
      case 3:
        return push(gelu(scale(x, 0.5)));
      case 4:
      case 5:
        return grow_dense(x);
      case 6:
        return grow_skip(x);
      case 7:
        return grow_norm(x);
      case 8:
        return push(softmax(x));
      case 9:
        return push(tanh(subtract(x, reduce_sum(x, {1}, true))));
      case 10:  // a value that has nothing to do with samples, and meets them
        return push(multiply(x, tanh(variable(Shape{width(x)}))));
      case 11:
        return push(tanh(add(x, variable(Shape{width(x)}))));
      case 12:
        return width(x) % 6 == 0 ? grow_attention(x) : grow_positions(x);
      default:
        return grow_image(x);
    }
  }
  static Dim width(const Tensor& x) { return x.shape()[1]; }

  void grow_dense(const Tensor& x) {
    const bool transposed = numbers_.chance(0.4);
    constexpr Dim widths[] = {4, 6, 8, 12};
    const Dim out = widths[numbers_.below(4)];
    const Tensor w = variable(transposed ? Shape{out, width(x)} : Shape{width(x), out});
    const Tensor y = matmul(x, w, {.transpose_b = transposed});
    push(numbers_.chance(0.5) ? relu(add(y, variable(Shape{out}))) : tanh(scale(y, 0.5)));
  }
  void grow_skip(const Tensor& x) {
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Tensor& y = pool_[index(numbers_.below(static_cast<int>(pool_.size())))];
      if (width(y) != width(x) || y.id() == x.id()) continue;
      return push(numbers_.chance(0.6) ? add(x, y) : tanh(multiply(x, y)));
    }
    push(maximum(x, scale(x, -0.5)));
  }
  void grow_norm(const Tensor& x) {
    push(layer_norm(x, variable(Shape{width(x)}), variable(Shape{width(x)}), 1e-3).y);
  }
  // (B, P * D) -> (B * P, D) and back: dimension 0 then counts more than samples.
  void grow_positions(const Tensor& x) {
    const Dim positions = 2, each = width(x) / positions;
    Tensor y = reshape(x, {batch_ * positions, each});
    if (numbers_.chance(0.5)) y = dropout(y, params_, 0.5, ++stream_);
    y = tanh(matmul(y, variable(Shape{each, each})));
    push(reshape(y, {batch_, width(x)}));
  }
  // Two positions with q, k and v of one or two heads each.
  void grow_attention(const Tensor& x) {
    const Dim third = width(x) / 6;
    const Tensor qkv = reshape(x, {batch_, 2, 3 * third});
    const int heads = third % 2 == 0 && numbers_.chance(0.5) ? 2 : 1;
    push(reshape(attention(qkv, {.heads = heads, .causal = numbers_.chance(0.5)}),
                 {batch_, 2 * third}));
  }
  void grow_image(const Tensor& x) {
    const Dim h = 2, w = width(x) / h;
    Tensor y = reshape(x, {batch_, h, w, 1});
    if (w < 2 || numbers_.chance(0.5)) {
      y = conv2d(y, variable(Shape{3, 3, 1, 2}), {.padding = "same"});
      return push(reshape(tanh(y), {batch_, h * w * 2}));
    }
    y = max_pool(reshape(relu(x), {batch_, h, w, 1}), {.pool_size = {2, 2}, .strides = {2, 2}});
    push(reshape(y, {batch_, w / 2}));
  }
  // Like a batch normalisation: what is summed over the batch meets its samples.
  void mix() {
    const Tensor x = pick();
    push(tanh(subtract(x, scale(reduce_sum(x, {0}, true), 1.0 / static_cast<double>(batch_)))));
  }

  // An update that waits for no gradient; its variable is not read any more.
  void update_early() {
    const Tensor v = recorder_.variable("early" + std::to_string(++early_), {dtype_, Shape{3, 5}},
                                        Category::parameters);
    sgd(v, scale(v, 0.5), params_);
  }

  void finish() {
    Tensor loss = reduce_sum(square(pick()));
    if (numbers_.chance(0.3)) loss = add(loss, reduce_sum(pick()));
    if (labels_.defined()) {
      const Tensor x = pick();
      const bool tied = numbers_.chance(0.5);  // as tall as an embedding's table
      const Tensor w = variable(tied ? Shape{kClasses, width(x)} : Shape{width(x), kClasses});
      const Tensor logits = matmul(x, w, {.transpose_b = tied});
      loss = add(loss, reduce_sum(sparse_softmax_cross_entropy(logits, labels_).loss));
      recorder_.keep(reduce_sum(sparse_categorical_accuracy(logits, labels_)), "correct");
    }
    loss = scale(loss, 1.0 / static_cast<double>(batch_));
    recorder_.keep(loss, "loss");
    const Tensors g = gradients(loss, variables_, fill(Shape{}, 1.0, dtype_));
    for (size_t v = 0; v < g.size(); ++v) {
      if (!g[v].defined()) continue;
      if (numbers_.chance(0.7)) {
        sgd(variables_[v], g[v], params_);
        continue;
      }
      const std::string name = "slot" + std::to_string(v);
      const Meta& meta = variables_[v].meta();
      adam(variables_[v], recorder_.variable(name + "m", meta, Category::optimizer),
           recorder_.variable(name + "v", meta, Category::optimizer), g[v], params_);
    }
  }

  void keep_some() {
    auto keep = [&](const Tensor& tensor) {
      const auto& kept = recorder_.graph().keep;
      if (std::find(kept.begin(), kept.end(), tensor.id()) == kept.end())
        recorder_.keep(tensor, "kept" + std::to_string(tensor.id()));
    };
    for (const Tensor& x : pool_) {
      if (numbers_.chance(0.1)) keep(x);
      if (numbers_.chance(0.05)) keep(reshape(x, {batch_, 1, width(x)}));
      if (numbers_.chance(0.05)) keep(reduce_sum(x, {0}));
    }
  }

  Numbers numbers_;
  Recorder recorder_;
  RecorderScope scope_;
  Dtype dtype_;
  int64_t batch_, stream_ = 0;
  int early_ = 0;
  Tensors pool_;       // (B, width), all of them rows
  Tensors variables_;  // first versions
  Tensor labels_, params_;
};

}  // namespace pl::test

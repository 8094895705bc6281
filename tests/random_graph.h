// Random small steps: branches, aliases, broadcasts, tied weights, several outputs, updates in the
// middle and at the end, gradients, kept inputs. Equal seeds give equal graphs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test {

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, Dtype dtype, int nodes)
      : numbers_(seed), scope_(recorder_), dtype_(dtype) {
    const int variables = 1 + numbers_.below(4), inputs = 1 + numbers_.below(3);
    for (int v = 0; v < variables; ++v) {
      const Tensor w = recorder_.variable("w" + std::to_string(v), matrix(), Category::parameters);
      pool_.push_back({w, v});
      current_.push_back(w);
    }
    for (int i = 0; i < inputs; ++i)
      pool_.push_back({recorder_.input("x" + std::to_string(i), matrix(), true), -1});
    params_ = recorder_.input("step_params", step_params_meta(), false);
    // A step has updates in the middle or a gradient of its own: gradients read old versions.
    const bool differentiate = numbers_.chance(0.5);
    for (int n = 0; n < nodes; ++n)
      if (!differentiate && numbers_.chance(0.08))
        update();
      else
        grow();
    if (differentiate) finish_with_gradients();
    keep_some();
  }
  Graph take() {
    check_graph(recorder_.graph());
    return recorder_.take();
  }

 private:
  struct Entry {
    Tensor tensor;
    int variable;  // whose bytes these are, through aliases; -1: transient
  };

  Meta matrix() {
    constexpr Dim sizes[] = {1, 2, 3, 4, 6, 8, 17};
    return {dtype_, Shape{sizes[numbers_.below(7)], sizes[numbers_.below(7)]}};
  }
  const Entry& pick() { return pool_[static_cast<size_t>(numbers_.below(size()))]; }
  // Recent values more often: chains, so that much dies and is replaced in place.
  const Entry& pick_recent() {
    const int from = std::max(0, size() - 4);
    return numbers_.chance(0.6) ? pool_[static_cast<size_t>(from + numbers_.below(size() - from))]
                                : pick();
  }
  int size() const { return static_cast<int>(pool_.size()); }
  void add_value(const Tensor& tensor, int variable = -1) { pool_.push_back({tensor, variable}); }

  void grow() {
    const Entry x = pick_recent();
    switch (numbers_.below(10)) {
      case 0:
        return add_value(relu(x.tensor));
      case 1:
        return add_value(tanh(x.tensor));
      case 2:
        return add_value(scale(x.tensor, 0.5, 0.25));
      case 3:
      case 4:
        return grow_binary(x.tensor);
      case 5:
        return grow_product(x.tensor);
      case 6:
        return grow_reshape(x);
      case 7:
        return add_value(reduce_sum(x.tensor, {numbers_.below(2)}, true));
      case 8:
        return grow_pool(x.tensor);
      default:
        return add_value(tanh(multiply(x.tensor, x.tensor)));
    }
  }
  void grow_binary(const Tensor& x) {
    for (int attempt = 0; attempt < 6; ++attempt) {
      const Tensor& y = pick().tensor;
      const Shape &a = x.shape(), &b = y.shape();
      bool fits = true;
      for (int axis : {0, 1}) fits = fits && (a[axis] == b[axis] || a[axis] == 1 || b[axis] == 1);
      if (!fits) continue;
      return add_value(numbers_.chance(0.5) ? add(x, y) : tanh(subtract(y, x)));
    }
    add_value(maximum(x, scale(x, -1.0)));
  }
  void grow_product(const Tensor& x) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Tensor& y = pick().tensor;
      const bool ta = numbers_.chance(0.3), tb = numbers_.chance(0.3);
      if (x.shape()[ta ? 0 : 1] != y.shape()[tb ? 1 : 0]) continue;
      const Tensor product = matmul(x, y, {.transpose_a = ta, .transpose_b = tb});
      return add_value(tanh(scale(product, 0.25)));
    }
    add_value(relu(matmul(x, x, {.transpose_b = true})));
  }
  void grow_reshape(const Entry& x) {
    const int64_t elements = x.tensor.meta().elements();
    std::vector<Dim> divisors;
    for (Dim d = 1; d <= elements; ++d)
      if (elements % d == 0) divisors.push_back(d);
    const Dim rows =
        divisors[static_cast<size_t>(numbers_.below(static_cast<int>(divisors.size())))];
    add_value(reshape(x.tensor, {rows, elements / rows}), x.variable);
  }
  void grow_pool(const Tensor& x) {
    const Dim h = x.shape()[0], w = x.shape()[1];
    if (h < 2 || w < 2) return add_value(square(x));
    const Tensor y = max_pool(reshape(relu(x), {1, h, w, 1}));
    add_value(reshape(y, {h / 2, w / 2}));
  }

  // The next version of a variable; its old bytes must not be read any more, by any alias.
  void update() {
    const int v = numbers_.below(static_cast<int>(current_.size()));
    const Tensor w = current_[static_cast<size_t>(v)];
    Tensor g = scale(w, 0.5);
    for (const Entry& entry : pool_)
      if (entry.variable != v && entry.tensor.shape() == w.shape() && numbers_.chance(0.5))
        g = entry.tensor;
    const Tensor next = sgd(w, g, params_);
    std::erase_if(pool_, [&](const Entry& entry) { return entry.variable == v; });
    current_[static_cast<size_t>(v)] = next;
    add_value(next, v);
  }

  void finish_with_gradients() {
    const Tensor loss = reduce_sum(square(pick_recent().tensor));
    recorder_.keep(loss, "loss");
    const Tensors g = gradients(loss, current_, fill(Shape{}, 1.0, dtype_));
    for (size_t v = 0; v < g.size(); ++v)
      if (g[v].defined()) {
        const int id = static_cast<int>(v);
        std::erase_if(pool_, [&](const Entry& entry) { return entry.variable == id; });
        sgd(current_[v], g[v], params_);
      }
  }

  void keep_some() {
    const auto& graph = recorder_.graph();
    for (const Entry& entry : pool_) {
      if (graph.keep.size() > 5 || !numbers_.chance(0.15)) continue;
      if (std::find(graph.keep.begin(), graph.keep.end(), entry.tensor.id()) == graph.keep.end())
        recorder_.keep(entry.tensor, "kept" + std::to_string(entry.tensor.id()));
    }
    if (graph.keep.empty()) recorder_.keep(pool_.back().tensor, "last");
  }

  Numbers numbers_;
  Recorder recorder_;
  RecorderScope scope_;
  Dtype dtype_;
  std::vector<Entry> pool_;
  Tensors current_;  // per variable: its newest version
  Tensor params_;
};

}  // namespace pl::test

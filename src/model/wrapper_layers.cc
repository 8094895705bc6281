// Bidirectional and TimeDistributed: layers around a layer. Its weights are theirs, under its name.
#include "base/error.h"
#include "model/layer_context.h"
#include "model/layers.h"
#include "model/network.h"
#include "model/recurrent_layer.h"
#include "model/rules.h"
#include "model/weight_home.h"
#include "op/functions.h"

namespace pl {
namespace {

// What a call of the wrapped layer gets: `weights` are its part of the wrapper's.
LayerCall inner_call(const LayerCall& call, std::span<const Tensor> in,
                     std::span<const Tensor> weights, int64_t part, std::span<const Tensor> masks) {
  LayerCall inner = call;
  inner.in = in;
  inner.weights = weights;
  inner.stream = call.stream ^ (part << 40);
  inner.masks = masks;
  return inner;
}

class BidirectionalLayer final : public PlainLayer {
 public:
  BidirectionalLayer(const RecurrentLayer& layer, const RecurrentLayer* other,
                     BidirectionalOptions options)
      : merge_mode_(std::move(options.merge_mode)) {
    RecurrentConfig config = layer.recurrent();
    const std::string base = layer.name.empty() ? snake_case(config.kind) : layer.name;
    forward_ = std::make_shared<RecurrentLayer>(config);
    forward_->name = "forward_" + base;
    config.go_backwards = !config.go_backwards;
    backward_ = std::make_shared<RecurrentLayer>(other ? other->recurrent() : config);
    backward_->name = "backward_" + base;
    if (other && !other->name.empty()) backward_->name = other->name;
    check_pair();
    set_common(*this, options);
    if (!dtype) dtype = layer.dtype;
    seed = layer.seed;
    forward_->trainable = layer.trainable;
    backward_->trainable = other ? other->trainable : layer.trainable;
    // Each direction has the penalty; of what is joined it is the same.
    activity_regularizer = layer.activity_regularizer;
    if (!activity_regularizer.empty() && merge_mode_ != "concat")
      throw UserError("[Bidirectional] expected merge_mode 'concat' for layers with an " +
                      std::string("activity_regularizer, received '") + merge_mode_ + "'");
  }
  const char* kind() const override { return "Bidirectional"; }
  std::string config() const override { return forward_->config() + " " + merge_mode_; }
  bool supports_masking() const override { return true; }
  Tensor compute_mask(const LayerCall& call) const override { return forward_->compute_mask(call); }

  bool trains(size_t index) const override {
    const size_t ahead = forward_->weights().size();
    return trainable &&
           (index < ahead ? forward_->trains(index) : backward_->trains(index - ahead));
  }

  Shape build(const std::vector<Shape>& in) override {
    const size_t states = forward_->states() + backward_->states();
    if (in.size() != 1 && in.size() != 1 + states)
      throw UserError("expected a sequence, or it and " + std::to_string(states) +
                      " states, received " + std::to_string(in.size()) + " inputs");
    Shape out = build_layer(*forward_, part_of(in, *forward_, 1));
    const Shape other = build_layer(*backward_, part_of(in, *backward_, 1 + forward_->states()));
    other_ = other;
    if (merge_mode_ != "concat" && !merge_mode_.empty() && out != other)
      throw UserError("expected as many units in both directions to merge them by '" + merge_mode_ +
                      "', received " + out.text() + " and " + other.text());
    if (weights_.empty())
      for (const auto& layer : {forward_, backward_})
        for (Weight weight : layer->weights()) {
          weight.name = layer->name + "/" + weight.name;
          weights_.push_back(std::move(weight));
        }
    if (merge_mode_ == "concat") out[out.rank() - 1] += other.back();
    return out;
  }

  std::vector<Symbolic> connect(const std::shared_ptr<Layer>& self,
                                const std::vector<Symbolic>& in) override {
    const Symbolic first = Layer::connect(self, in)[0];
    std::vector<Shape> shapes;
    if (merge_mode_.empty()) shapes.push_back(other_);
    if (forward_->recurrent().return_state)
      for (const auto& layer : {forward_, backward_})
        shapes.insert(shapes.end(), layer->states(), Shape{layer->recurrent().units});
    return with_more(first, shapes, merge_mode_.empty() ? 1 : 0);
  }

  Tensor call(const LayerCall& call) const override {
    const size_t own = forward_->weights().size();
    const Tensors all(call.in.begin(), call.in.end());
    const Tensors ahead = part_of(all, *forward_, 1),
                  back = part_of(all, *backward_, 1 + forward_->states());
    const auto first =
        forward_->run(inner_call(call, ahead, call.weights.first(own), 1, call.masks), true);
    const auto second =
        backward_->run(inner_call(call, back, call.weights.subspan(own), 2, call.masks), true);
    const Tensor &a = first.output, &b = second.output;
    Tensors more;
    if (merge_mode_.empty()) more.push_back(b);
    if (forward_->recurrent().return_state)
      for (const auto* result : {&first, &second})
        more.insert(more.end(), result->states.begin(), result->states.end());
    if (!more.empty()) give_more(call, name, std::move(more));
    if (merge_mode_.empty()) return a;
    if (merge_mode_ == "concat") return concatenate({a, b}, -1);
    if (merge_mode_ == "mul") return multiply(a, b);
    return merge_mode_ == "ave" ? scale(add(a, b), 0.5) : add(a, b);
  }

 private:
  void check_pair() const {
    const RecurrentConfig &a = forward_->recurrent(), &b = backward_->recurrent();
    if (a.go_backwards == b.go_backwards)
      throw UserError(
          "[Bidirectional] backward_layer: expected the other go_backwards than the layer's, "
          "received the same");
    if (a.return_sequences != b.return_sequences)
      throw UserError(
          "[Bidirectional] backward_layer: expected the layer's return_sequences, received the "
          "other");
    if (a.return_state != b.return_state)
      throw UserError(
          "[Bidirectional] backward_layer: expected the layer's return_state, received the other");
    for (const char* known : {"", "concat", "sum", "mul", "ave"})
      if (merge_mode_ == known) return;
    throw UserError("[Bidirectional] merge_mode: expected concat, sum, mul or ave, received '" +
                    merge_mode_ + "'");
  }

  // The sequence, and the layer's states where there are some, the first of them at `first`.
  template <class T>
  static std::vector<T> part_of(const std::vector<T>& in, const RecurrentLayer& layer,
                                size_t first) {
    std::vector<T> part{in[0]};
    for (size_t i = 0; i < layer.states() && in.size() > 1; ++i) part.push_back(in[first + i]);
    return part;
  }

  std::string merge_mode_;
  std::shared_ptr<RecurrentLayer> forward_, backward_;
  Shape other_;  // of one sample of the backward layer's output
};

class TimeDistributedLayer final : public PlainLayer {
 public:
  explicit TimeDistributedLayer(std::shared_ptr<Layer> layer) : layer_(std::move(layer)) {
    dtype = layer_->dtype;
    activity_regularizer = layer_->activity_regularizer;  // of all steps together
    seed = layer_->seed;
  }
  const char* kind() const override { return "TimeDistributed"; }
  std::string config() const override {
    return layer_->kind() + std::string(" ") + layer_->config();
  }
  // One for each step goes on; one for each step's own positions is the layer's.
  Tensor compute_mask(const LayerCall& call) const override {
    const Tensor mask = call.mask(0);
    return mask.defined() && mask.shape().rank() == 2 ? mask : Tensor();
  }
  int64_t vocabulary() const override { return layer_->vocabulary(); }
  bool trains(size_t index) const override { return trainable && layer_->trains(index); }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 2)
      throw UserError("expected one sequence (steps, ...), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape out = build_layer(*layer_, {in[0].without_front()});
    const std::string inner = layer_->name.empty() ? snake_case(layer_->kind()) : layer_->name;
    if (weights_.empty())
      for (Weight weight : layer_->weights()) {
        weight.name = inner + "/" + weight.name;
        weights_.push_back(std::move(weight));
      }
    return out.with_front(in[0][0]);
  }

  // Steps are samples to the layer, unless it looks at all samples of a call.
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const Dim batch = x.shape()[0], steps = x.shape()[1];
    const Shape step = x.shape().without_front().without_front();
    if (call.training && std::string(layer_->kind()) == "BatchNormalization")
      return step_by_step(call, step);
    const Tensor in[] = {reshape(x, step.with_front(batch * steps).dims())};
    Tensor mask = call.mask(0);
    if (mask.defined() && mask.shape().rank() > 2)
      mask = reshape(mask,
                     mask.shape().without_front().without_front().with_front(batch * steps).dims());
    else
      mask = Tensor();
    const Tensor masks[] = {mask};
    LayerCall inner = inner_call(call, in, call.weights, 0, masks);
    inner.trainable = call.trainable && layer_->trainable;
    const Tensor out = run_layer(*layer_, inner);
    return reshape(out, out.shape().without_front().with_front(steps).with_front(batch).dims());
  }

 private:
  // As Keras does it: moments of each step alone, which move the averages one after the other.
  Tensor step_by_step(const LayerCall& call, const Shape& step) const {
    const Tensor& x = call.in[0];
    Tensors outputs;
    for (Dim t = 0; t < x.shape()[1]; ++t) {
      const Tensor in[] = {reshape(slice(x, 1, t, 1), step.with_front(x.shape()[0]).dims())};
      LayerCall inner = inner_call(call, in, call.weights, 1 + t, {});
      inner.trainable = call.trainable && layer_->trainable;
      const Tensor out = run_layer(*layer_, inner);
      outputs.push_back(reshape(
          out, out.shape().without_front().with_front(1).with_front(out.shape()[0]).dims()));
    }
    return concatenate(outputs, 1);
  }

  std::shared_ptr<Layer> layer_;
};

}  // namespace

LayerRef Bidirectional(const LayerRef& layer, BidirectionalOptions options) {
  const RecurrentLayer* forward = as_recurrent(layer);
  const RecurrentLayer* backward =
      options.backward_layer ? as_recurrent(*options.backward_layer) : nullptr;
  if (!forward || (options.backward_layer && !backward))
    throw UserError("[Bidirectional] expected an LSTM, GRU or SimpleRNN, received " +
                    std::string(forward ? (*options.backward_layer)->kind() : layer->kind()));
  return LayerRef(std::make_shared<BidirectionalLayer>(*forward, backward, std::move(options)));
}

LayerRef TimeDistributed(const LayerRef& layer, std::string name) {
  auto made = std::make_shared<TimeDistributedLayer>(layer.get());
  made->name = std::move(name);
  return LayerRef(std::move(made));
}

}  // namespace pl

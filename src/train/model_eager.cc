// Model on values, and on symbols in pl::function: calls, and its weights as Variables.
#include <cstring>

#include "base/error.h"
#include "model/function_layer.h"
#include "model/layer_context.h"
#include "model/regularizer.h"
#include "op/cast.h"
#include "train/function_trace.h"
#include "train/model.h"
#include "train/model_state.h"
#include "train/step_scope.h"

namespace pl {
namespace {

// For random layers: another step in every call.
Tensor step_params(ModelState& state, Dim rows) {
  auto fill = [&state, rows](void* to) {
    StepParams params;
    params.step = ++state.eager_calls;
    params.rows = rows;
    std::memcpy(to, &params, sizeof params);
  };
  if (FunctionTrace* trace = FunctionTrace::current())
    return trace->host_input({&state, "step_params", step_params_meta(), fill});
  const Tensor params(step_params_meta());
  fill(params.data());
  return params;
}

// The network with what Layer::trainable says now; empty where that is as it was settled.
Network settled_now(const Network& network) {
  Network now;
  for (const Network::Call& call : network.calls())
    if (call.trainable != call.layer->trainable) {
      now = network;
      now.settle_trainable();
      break;
    }
  return now;
}

// A weight as an op reads it; one that its layer moves, as an op writes it.
Tensor weight_of(const Variable& variable, bool written) {
  if (written && !VariableTracer::current()) return variable.state()->writable();
  return variable.value();
}

// A model called on tensors in call() of another one, or in its steps.
class MemberLayer final : public Layer {
 public:
  explicit MemberLayer(ModelState& state)
      : kind_(state.layers.empty() ? "Functional" : "Sequential"), state_(state.weak_from_this()) {
    name = state.given_name();
  }
  const char* kind() const override { return kind_; }
  int64_t vocabulary() const override { return vocabulary(0); }
  int64_t vocabulary(size_t input) const override {
    const auto state = state_.lock();
    return state && state->network.built() ? state->network.vocabulary(input) : 0;
  }
  Shape build(const std::vector<Shape>& in) override {
    const auto state = state_.lock();
    state->build(in);
    const Network& network = state->network;
    weights_.clear();
    for (size_t i = 0; i < network.weights().size(); ++i) {
      const NetworkWeight& weight = network.weights()[i];
      weights_.push_back({.name = weight.path,
                          .shape = weight.shape,
                          .initializer = weight.initializer,
                          .trainable = !weight.state,
                          .regularizer = weight.regularizer,
                          .constraint = weight.constraint,
                          .values = weight.values,
                          .dtype = weight.dtype,
                          .carried = weight.carried});
    }
    return network.output_shapes()[0];
  }
  Tensor call(const LayerCall& call) const override {
    const auto state = state_.lock();
    NetworkNotes notes{.masks = {},
                       .losses = {},
                       .salt = call.stream,
                       .input_masks = Tensors(call.masks.begin(), call.masks.end())};
    const Tensors out = state->network.call(Tensors(call.in.begin(), call.in.end()),
                                            Tensors(call.weights.begin(), call.weights.end()),
                                            call.training, call.step_params, call.compute, &notes);
    for (const Tensor& loss : notes.losses) call.add_loss(loss);
    if (call.result_masks) *call.result_masks = std::move(notes.masks);
    if (call.more) call.more->assign(out.begin() + 1, out.end());
    return out[0];
  }
  std::vector<LayerMember> members() const override {
    std::vector<LayerMember> list;
    const auto state = state_.lock();
    for (const Network::Place& place : state->network.places())
      if (!place.inside)
        list.push_back({place.layer, place.path,
                        std::vector<size_t>(place.weights.begin(), place.weights.end()),
                        place.shape});
    return list;
  }
  bool trains(size_t index) const override {
    const NetworkWeight& weight = state_.lock()->network.weights()[index];
    return trainable && weight.layer->trains(weight.index);
  }

 private:
  const char* kind_;
  std::weak_ptr<ModelState> state_;
};

}  // namespace

const std::shared_ptr<Layer>& ModelState::as_member() {
  if (!member) member = std::make_shared<MemberLayer>(*this);
  return member;
}

const char* ModelState::kind() const {
  if (name == "model") return "Model";
  return layers.empty() && name != "sequential" ? "Functional" : "Sequential";
}

std::string ModelState::given_name() const {
  return name == "model" || name == "sequential" || name == "functional" ? "" : name;
}

namespace {

// A model whose steps call others, such as a generator and a discriminator, needs none.
class NoCall final : public UserError {
 public:
  NoCall() : UserError("expected layers, or a class derived from Model that overrides call()") {}
};

}  // namespace

Tensor Model::call(const Tensor&, bool) { throw NoCall(); }

Tensors Model::call(const Tensors& xs, bool training) {
  if (xs.size() != 1)
    throw UserError("expected one input, or a class that overrides call(const Tensors&, bool), " +
                    std::string("received ") + std::to_string(xs.size()));
  return {call(xs[0], training)};
}

void Model::bind() {
  state_->self = this;
  ModelState* state = state_.get();
  state_->subclass = [state](std::vector<Dtype> dtypes) {
    auto layer = std::make_shared<FunctionLayer>("Model", [state] {
      return [state](const Tensors& x, bool training) {
        try {
          return state->self->call(x, training);
        } catch (const NoCall&) {
          if (state->network.built() || !state->custom()) throw;
          return x;
        }
      };
    });
    layer->expect(std::move(dtypes));
    for (const auto& [other, in] : state->also) layer->also(other, in);
    return LayerRef(std::move(layer));
  };
  state_->step = [state](const StepData& data) {
    const bool training = StepScope::current()->training();
    return training ? state->self->train_step(data) : state->self->test_step(data);
  };
}

const std::vector<Variable>& ModelState::weight_handles() {
  const Dtype dtype = settings().dtype.variable;
  handles.clear();
  for (size_t i = 0; i < network.weights().size(); ++i) {
    const WeightHome& own = home(i);
    VariableState& variable = *own.variable;
    if (!own.exists()) variable.meta = {dtype, network.weights()[i].shape};
    if (!StepScope::current()) {
      variable.name = network.weights()[i].path;  // as whoever asks calls it
      variable.trainable = trains(i);
    }
    handles.emplace_back(own.variable);
  }
  return handles;
}

std::vector<Variable> Model::variables() {
  state_->require_built("variables");
  if (!StepScope::current()) state_->require_weights();
  return state_->weight_handles();
}

std::vector<Variable> Model::trainable_variables() {
  std::vector<Variable> list;
  const StepScope* step = StepScope::current();
  for (const Variable& variable : variables())
    if (step ? step->trains(variable) : variable.trainable()) list.push_back(variable);
  return list;
}

Tensor Model::operator()(const Tensor& x, bool training) {
  const Tensors out = (*this)(Tensors{x}, training);
  if (out.size() != 1)
    throw UserError("[call] " + state_->name + ": expected a model with one output, received " +
                    std::to_string(out.size()) + "; call it on a list of tensors for all");
  return out[0];
}

Tensors Model::operator()(const Tensors& xs, bool training) {
  std::vector<Shape> shapes;
  std::vector<Dtype> dtypes;
  for (const Tensor& x : xs) {
    if (!x.defined() || x.shape().rank() < 1)
      throw UserError("[call] " + state_->name + ": expected samples as rows, received " +
                      (x.defined() ? x.meta().text() : "nothing"));
    shapes.push_back(x.shape().without_front());
    dtypes.push_back(x.dtype());
  }
  if (StepScope* step = StepScope::current(); step && step->runs(state_.get()))
    return step->forward(xs, training);
  if (LayerContext* context = LayerContext::current())
    return context->call(state_->as_member(), xs, training);
  if (!state_->network.built()) state_->build(shapes, dtypes);
  const Network settled = settled_now(state_->network);
  const Network& network = settled.built() ? settled : state_->network;
  if (shapes != network.input_shapes()) {
    std::string expected, received;
    for (const Shape& shape : network.input_shapes())
      expected += (expected.empty() ? "" : " and ") + shape.text();
    for (const Tensor& x : xs) received += (received.empty() ? "" : " and ") + x.meta().text();
    throw UserError("[call] " + network.calls()[0].path + ": expected samples of shape " +
                    expected + ", received " + received);
  }
  const Dtype compute = state_->settings().dtype.compute;
  const std::vector<Variable> all = variables();
  Tensors weights;
  auto moves = [&](size_t i) {
    return network.weights()[i].carried || (training && network.weights()[i].state);
  };
  for (size_t i = 0; i < all.size(); ++i) weights.push_back(weight_of(all[i], moves(i)));
  Tensors in;
  for (size_t i = 0; i < xs.size(); ++i)
    in.push_back(
        cast(xs[i], network.vocabulary(i) > 0 ? Dtype::int32 : network.input_compute(i, compute)));
  NetworkNotes notes;
  const Tensors y =
      network.call(in, weights, training, step_params(*state_, xs[0].shape()[0]), compute, &notes);
  state_->called_losses = std::move(notes.losses);
  for (size_t i = 0; i < all.size() && !VariableTracer::current(); ++i)
    if (moves(i)) all[i].state()->wrote();
  return y;
}

namespace {

StepScope& step_of(const ModelState& state, const char* call) {
  StepScope* step = StepScope::current();
  if (!step || !step->runs(&state))
    throw UserError("[" + std::string(call) + "] " + state.name +
                    ": expected to be called in a step of fit() or evaluate(); call those");
  return *step;
}

}  // namespace

TensorLogs Model::train_step(const StepData& data) {
  return step_of(*state_, "train_step").standard(data);
}

TensorLogs Model::test_step(const StepData& data) {
  return step_of(*state_, "test_step").standard(data);
}

Tensor Model::compute_loss(const StepData& data, const Tensor& y_pred) {
  return compute_loss(data, Tensors{y_pred});
}
Tensor Model::compute_loss(const StepData& data, const Tensors& y_pred) {
  return step_of(*state_, "compute_loss").loss(data, y_pred);
}

Tensors Model::losses() {
  if (StepScope* step = StepScope::current(); step && step->runs(state_.get()))
    return step->losses();
  Tensors list;
  const std::vector<Variable> all = variables();
  for (size_t w = 0; w < all.size(); ++w) {
    const std::string& regularizer = state_->network.weights()[w].regularizer;
    if (!regularizer.empty() && all[w].trainable())
      list.push_back(penalty(regularizer, all[w].value()));
  }
  list.insert(list.end(), state_->called_losses.begin(), state_->called_losses.end());
  return list;
}
TensorLogs Model::compute_metrics(const StepData& data, const Tensor& y_pred) {
  return compute_metrics(data, Tensors{y_pred});
}
TensorLogs Model::compute_metrics(const StepData& data, const Tensors& y_pred) {
  return step_of(*state_, "compute_metrics").metrics(data, y_pred);
}

Compiled ModelState::step_settings() {
  Compiled compiled = settings();
  if (!custom()) return compiled;
  compiled.step.model = this;
  compiled.step.variables = weight_handles();
  for (size_t i = 0; i < network.weights().size(); ++i)  // as compile() settled it
    compiled.step.variables[i].state()->trainable = network.weights()[i].trainable;
  compiled.step.run = step;
  return compiled;
}

}  // namespace pl

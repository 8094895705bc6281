// Model: construction, compile, and what it is made of. Its weights are model_weights.cc, running
// it is model_fit.cc and model_run.cc.
#include "train/model.h"

#include <algorithm>

#include "backend/devices.h"
#include "base/error.h"
#include "model/nested.h"
#include "op/runtime.h"
#include "train/compile_heads.h"
#include "train/model_state.h"

namespace pl {

LossChoice::LossChoice(Loss loss) {
  if (!loss.function) loss.name = loss_from_name(loss.name).name;
  check_loss(loss);
  value = std::move(loss);
}

Model::Model() : state_(std::make_shared<ModelState>()) {
  state_->name = "model";
  bind();
}
// A model that was moved from is an empty one, which says so when it is used.
Model::Model(Model&& other) noexcept : Model() { *this = std::move(other); }
Model& Model::operator=(Model&& other) noexcept {
  state_.swap(other.state_);
  bind();
  other.bind();
  return *this;
}
Model::~Model() = default;

Model::Model(const Symbolic& input, const Symbolic& output)
    : Model(std::vector<Symbolic>{input}, std::vector<Symbolic>{output}) {}

Model::Model(const std::vector<Symbolic>& inputs, const std::vector<Symbolic>& outputs) : Model() {
  state_->name = "functional";
  state_->network = Network(inputs, outputs);
  state_->inputs = inputs;
  state_->outputs = outputs;
  if (!state_->network.built())
    throw UserError("[build] expected outputs made by layers, received an input alone");
}

Sequential::Sequential(std::vector<LayerRef> layers) {
  state_->name = "sequential";
  state_->layers = std::move(layers);
}

Sequential::Sequential(const Shape& input, std::vector<LayerRef> layers)
    : Sequential(std::move(layers)) {
  build(input);
}

void Sequential::add(LayerRef layer) {
  if (state_->network.built())
    throw UserError("[build] add: expected a Sequential that is not built yet; list all layers " +
                    std::string("before giving the input shape"));
  state_->layers.push_back(std::move(layer));
}

void Model::build(const Shape& input) { state_->build({input}); }
void Model::build(const std::vector<Shape>& inputs, const std::vector<Dtype>& dtypes) {
  state_->build(inputs, dtypes);
}

namespace {

// The one asked for, or the one in scope.
std::shared_ptr<DeviceSpace> device_for(const CompileOptions& options) {
  std::string name = options.device;
  if (const DeviceScope* scope = DeviceScope::current(); scope && name.empty() && scope->space())
    name = scope->space()->name();
  if (name.empty()) return nullptr;
  return Devices::current()->open(device_from_name(name, "compile"));
}

}  // namespace

void Model::compile(const CompileOptions& options) {
  state_->require_idle("compile");
  // A Sequential that waits for its input shape has one output; what a subclass has is known when
  // it is built.
  const bool built = state_->network.built(), custom = state_->custom();
  std::vector<Head> heads;
  state_->heads = nullptr;
  if (built || !custom)
    heads = make_heads(options,
                       built ? state_->network.output_names() : std::vector<std::string>{"output"},
                       custom);
  else
    state_->heads = [options](const std::vector<std::string>& outputs) {
      return make_heads(options, outputs, true);
    };
  if (policy_from_name(name_of(options.dtype)) != options.dtype)
    throw UserError(
        "[compile] dtype: expected float32, float64, kMixedBfloat16 or kMixedFloat16, received " +
        std::string(name_of(options.dtype.variable)) + " variables and " +
        std::string(name_of(options.dtype.compute)) + " computation");
  if (options.steps_per_execution < 1)
    throw UserError("[compile] steps_per_execution: expected 1 or more, received " +
                    std::to_string(options.steps_per_execution));
  const Dtype existing = state_->existing_dtype().value_or(options.dtype.variable);
  if (options.dtype.variable != existing)
    throw UserError("[compile] dtype: expected " + std::string(name_of(existing)) +
                    ", in which the weights exist already, received " +
                    std::string(name_of(options.dtype.variable)) +
                    "; compile before the weights are first used");
  std::shared_ptr<DeviceSpace> device = device_for(options);
  const OptimizerRef optimizer =
      scaled_for(options.dtype, options.optimizer.value ? options.optimizer.value : RMSprop());
  state_->compiled =
      Compiled{optimizer, Loss{}, MetricList{}, options.dtype, std::move(heads), options.remat};
  state_->compiled->run_eagerly = options.run_eagerly;
  state_->compiled->fuse = options.fuse;
  state_->compiled->steps_per_execution = options.steps_per_execution;
  state_->compiled->space = device;
  optimizer->inner().fitted = 0;
  state_->last.reset();  // before the device that it is for
  state_->held_session.reset();
  state_->device = std::move(device);
  state_->deterministic = options.deterministic;
  if (built) state_->network.settle_trainable();
  state_->steps = state_->epochs = 0;
  state_->updates_per_step = 1;
  state_->fresh_optimizer = true;
  state_->traced_variables.reset();
}

LayerRef Model::as_layer(std::optional<bool> training) const {
  auto network = [state = state_](const std::vector<Shape>& in) -> const Network& {
    if (!state->network.built()) state->build(in);
    return state->network;
  };
  return nested_layer(state_->given_name(), state_->kind(), network, training);
}
Model::operator LayerRef() const { return as_layer(); }
Symbolic Model::operator()(const Symbolic& in) const { return as_layer()(in); }
std::vector<Symbolic> Model::operator()(const std::vector<Symbolic>& in) const {
  const LayerRef layer = as_layer();
  return layer->connect(layer.get(), in);
}

const std::string& Model::name() const { return state_->name; }
void Model::set_name(std::string name) { state_->name = std::move(name); }

LayerRef Model::get_layer(const std::string& name) const {
  for (const LayerRef& layer : state_->layers)
    if (layer->name == name) return layer;
  state_->require_built("get_layer");
  return state_->network.get_layer(name);
}

std::vector<LayerRef> Model::layers() const {
  if (!state_->layers.empty()) return state_->layers;
  std::vector<LayerRef> list;
  for (const Network::Place& place : state_->network.places())
    if (!place.inside) list.emplace_back(place.layer);
  return list;
}

namespace {

const std::vector<Symbolic>& symbols_of(const ModelState& state, const char* call,
                                        const std::vector<Symbolic>& symbols) {
  state.require_built(call);
  if (symbols.empty())
    throw UserError(
        "[" + std::string(call) + "] " + state.name +
        ": expected a model made of symbols, received a class with a call() of its own");
  return symbols;
}

}  // namespace

std::vector<Symbolic> Model::inputs() const {
  return symbols_of(*state_, "inputs", state_->inputs);
}
std::vector<Symbolic> Model::outputs() const {
  return symbols_of(*state_, "outputs", state_->outputs);
}

void Model::set_trainable(bool trainable) {
  for (const LayerRef& layer : state_->layers) layer->trainable = trainable;
  for (const Network::Call& call : state_->network.calls()) call.layer->trainable = trainable;
}

int64_t Model::count_params() const {
  state_->require_built("count_params");
  return state_->network.parameters();
}

int64_t Model::iterations() const {
  int64_t count = state_->steps * state_->updates_per_step;
  if (!state_->compiled) return count;
  const Optimizer& optimizer = *state_->compiled->optimizer;
  if (const int slot = optimizer.iterations_slot(); slot >= 0) {
    const std::string path =
        std::string(optimizer.name()) + "/" +
        optimizer.shared_slots(state_->compiled->dtype.variable)[static_cast<size_t>(slot)].name;
    if (!state_->variables || state_->fresh_optimizer) return 0;
    const VariableLayout& layout = state_->variables->layout();
    for (size_t i = 0; i < layout.entries.size(); ++i)
      if (layout.entries[i].path == path)
        count = static_cast<int64_t>(state_->variables->number(i));
  }
  return count / std::max<int64_t>(accumulation_of(*state_->compiled), 1);
}

Optimizer& Model::optimizer() {
  state_->require_compiled("optimizer");
  return state_->compiled->optimizer->inner();
}

}  // namespace pl

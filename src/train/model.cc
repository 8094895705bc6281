// Model: construction, compile, and its weights. Running it is model_run.cc.
#include "train/model.h"

#include <algorithm>
#include <cstring>

#include "backend/devices.h"
#include "base/error.h"
#include "model/nested.h"
#include "op/runtime.h"
#include "train/checkpoint.h"
#include "train/model_state.h"
#include "train/weights.h"

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

// Puts what was given by name in the order of the outputs; `otherwise` for those that are not
// named.
template <class T>
std::vector<T> by_output(const std::vector<std::pair<std::string, T>>& named,
                         const std::vector<std::string>& outputs, const T& otherwise,
                         const char* what) {
  std::vector<T> list(outputs.size(), otherwise);
  for (const auto& [name, value] : named) {
    const auto at = std::find(outputs.begin(), outputs.end(), name);
    if (at == outputs.end()) {
      std::string known;
      for (const std::string& output : outputs) known += (known.empty() ? "" : ", ") + output;
      throw UserError("[compile] " + std::string(what) + ": expected names of outputs (" + known +
                      "), received '" + name + "'");
    }
    list[static_cast<size_t>(at - outputs.begin())] = value;
  }
  return list;
}

void expect_count(const char* what, size_t outputs, size_t given) {
  if (given != outputs)
    throw UserError("[compile] " + std::string(what) + ": expected one for each of " +
                    std::to_string(outputs) + " outputs, received " + std::to_string(given));
}

std::vector<MetricList> metrics_of(const MetricChoices& choices,
                                   const std::vector<std::string>& outputs, const char* what) {
  if (!choices.in_order.empty()) {
    expect_count(what, outputs.size(), choices.in_order.size());
    return choices.in_order;
  }
  if (choices.only.empty()) return by_output(choices.by_name, outputs, MetricList(), what);
  if (outputs.size() == 1) return {choices.only};
  if (choices.only.size() != outputs.size())
    throw UserError("[compile] " + std::string(what) + ": expected lists by the outputs' names, " +
                    "{{\"" + outputs[0] + "\", {\"accuracy\"}}}, received one list for " +
                    std::to_string(outputs.size()) + " outputs");
  std::vector<MetricList> each;
  for (const Metric& metric : choices.only) each.push_back({metric});
  return each;
}

// `outputs`: their names.
// `custom`: it may have no loss.
std::vector<Head> make_heads(const CompileOptions& options, const std::vector<std::string>& outputs,
                             bool custom) {
  const LossChoices& loss = options.loss;
  std::vector<LossChoice> losses = loss.in_order;
  if (loss.every) losses.assign(outputs.size(), *loss.every);
  if (!loss.by_name.empty()) losses = by_output(loss.by_name, outputs, LossChoice(), "loss");
  if (custom && losses.empty()) losses.resize(outputs.size());
  expect_count("loss", outputs.size(), losses.size());
  std::vector<double> weights = options.loss_weights.in_order;
  if (weights.empty())
    weights = by_output(options.loss_weights.by_name, outputs, 1.0, "loss_weights");
  expect_count("loss_weights", outputs.size(), weights.size());
  const auto metrics = metrics_of(options.metrics, outputs, "metrics");
  const auto weighted = metrics_of(options.weighted_metrics, outputs, "weighted_metrics");
  std::vector<Head> heads;
  bool any = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    heads.push_back({losses[o].value, weights[o], metrics[o], weighted[o]});
    if (!heads[o].loss) continue;
    any = true;
    check_loss(*heads[o].loss);
    if (heads[o].loss->reduction == "none")
      throw UserError("[compile] " + heads[o].loss->name +
                      ": expected a reduction to one number for training, received 'none'");
  }
  if (!any && !custom)
    throw UserError("[compile] loss: expected one, such as \"sparse_categorical_crossentropy\"");
  return heads;
}

// The one asked for, or the one in scope.
std::shared_ptr<DeviceSpace> device_for(const CompileOptions& options) {
  std::string name = options.device;
  if (const DeviceScope* scope = DeviceScope::current(); scope && name.empty() && scope->space())
    name = scope->space()->name();
  if (name.empty()) return nullptr;
  return open_device(device_from_name(name, "compile"), options.deterministic);
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
  optimizer->inner().fitted = 0;
  state_->last.reset();  // before the device that it is for
  state_->held_session.reset();
  state_->device = std::move(device);
  state_->deterministic = options.deterministic;
  if (built) state_->network.settle_trainable();
  state_->steps = state_->epochs = 0;
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
  int64_t count = state_->steps;
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

void Model::save_weights(const std::string& path) {
  state_->require_built("save_weights");
  pl::save_weights(path, state_->weights());
}

void Model::load_weights(const std::string& path) {
  state_->require_built("load_weights");
  if (has_checkpoint(path)) {
    const Checkpoint checkpoint(path);
    check_weights(checkpoint.tensors(), state_->layout(false), true);
    pl::load_weights(checkpoint.tensors(), state_->weights_to_write());
    return;
  }
  const SafetensorsFile file(path);
  check_weights(file, state_->layout(false));
  pl::load_weights(file, state_->weights_to_write());
}

void Model::save_checkpoint(const std::string& folder) {
  state_->require_built("save_checkpoint");
  const Compiled compiled = state_->settings();
  TrainState saved;
  saved.identity = {.model = state_->name,
                    .optimizer = compiled.optimizer ? compiled.optimizer->name() : "",
                    .dtype = std::string(name_of(compiled.dtype))};
  saved.steps_before = state_->steps;
  saved.epochs_before = state_->epochs;
  if (compiled.optimizer) saved.learning_rate = compiled.optimizer->inner().learning_rate;
  write_checkpoint(folder, named_variables(state_->weights()), to_json(saved));
}

void Model::load_checkpoint(const std::string& folder) {
  state_->require_built("load_checkpoint");
  const Checkpoint checkpoint(folder);
  const TrainState saved = train_state_from(checkpoint.state(), folder);
  // A model that was never trained has no optimiser state to save.
  const VariableLayout weights = state_->layout(false);
  bool with_slots = false;
  for (const auto& entry : checkpoint.tensors().entries())
    if (!entry.name.starts_with(kCallbackTensors) && !weights.find(entry.name)) with_slots = true;
  if (with_slots) state_->require_compiled("load_checkpoint");
  const VariableLayout layout = with_slots ? state_->layout(true) : weights;
  checkpoint.verify(layout);
  state_->held_session.reset();
  Variables& variables = state_->weights_to_write();
  variables.adopt(layout);
  checkpoint.load(variables);
  state_->last.reset();
  state_->fresh_optimizer = !with_slots;
  state_->steps = saved.steps_before + saved.position.steps;
  state_->epochs = saved.epochs_before + saved.position.epoch - 1;
  if (with_slots) state_->compiled->optimizer->inner().learning_rate = saved.learning_rate;
  if (state_->compiled) state_->compiled->optimizer->inner().fitted = iterations();
}

std::vector<WeightInfo> Model::weights() {
  state_->require_built("weights");
  std::vector<WeightInfo> list;
  for (const NetworkWeight& weight : state_->network.weights())
    list.push_back(
        {weight.path, {state_->settings().dtype.variable, weight.shape}, weight.trainable});
  return list;
}

Tensors Model::get_weights() {
  state_->require_built("get_weights");
  state_->require_weights();
  Tensors values;
  for (size_t i = 0; i < state_->network.weights().size(); ++i) {
    VariableState& variable = *state_->home(i).variable;
    std::memcpy(values.emplace_back(variable.meta).data(), variable.current().data(),
                static_cast<size_t>(variable.meta.bytes()));
  }
  return values;
}

void Model::reset_state(const std::string& layer) {
  state_->require_built("reset_state");
  bool found = false;
  for (size_t i = 0; i < state_->network.weights().size(); ++i) {
    const NetworkWeight& weight = state_->network.weights()[i];
    const bool named =
        layer.empty() || ("/" + weight.path).find("/" + layer + "/") != std::string::npos;
    if (!weight.carried || !named) continue;
    found = true;
    if (!state_->variables) continue;  // they start as zeros
    Variables& variables = *state_->variables;
    state_->weight_handles()[i].state()->writable();
    variables.stepped();
    std::memset(variables.at(i), 0,
                static_cast<size_t>(variables.layout().entries[i].meta.bytes()));
    variables.written();
    state_->weight_handles()[i].state()->wrote();
  }
  if (!found && !layer.empty())
    throw UserError("[reset_state] " + layer + ": expected a stateful layer of " + state_->name +
                    ", received none");
}

void Model::set_weights(const Tensors& values) {
  const std::vector<WeightInfo> list = weights();
  if (values.size() != list.size())
    throw UserError("[set_weights] expected " + std::to_string(list.size()) +
                    " tensors, received " + std::to_string(values.size()));
  for (size_t i = 0; i < list.size(); ++i)
    if (values[i].meta() != list[i].meta)
      throw UserError("[set_weights] " + list[i].path + ": expected " + list[i].meta.text() +
                      ", received " + values[i].meta().text());
  for (const Tensor& value : values) value.data();  // a symbol is refused before anything changes
  Variables& variables = state_->weights_to_write();
  for (size_t i = 0; i < list.size(); ++i)
    std::memcpy(variables.at(i), values[i].data(), static_cast<size_t>(list[i].meta.bytes()));
  variables.written();
}

}  // namespace pl

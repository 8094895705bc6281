#include "train/model_state.h"

#include <cstring>
#include <typeinfo>

#include "base/error.h"
#include "train/model.h"
#include "train/samples.h"
#include "train/step_scope.h"

namespace pl {
void ModelState::build(const std::vector<Shape>& inputs, const std::vector<Dtype>& dtypes) {
  if (network.built()) {
    if (inputs.size() != network.input_shapes().size())
      throw UserError("[build] " + network.calls()[0].path + ": expected " +
                      std::to_string(network.input_shapes().size()) +
                      " inputs as at first, received " + std::to_string(inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != network.input_shapes()[i])
        throw UserError("[build] " + network.calls()[0].path + ": expected samples of shape " +
                        network.input_shapes()[i].text() + " as at first, received " +
                        inputs[i].text());
    return;
  }
  if (!layers.empty()) {
    if (inputs.size() != 1)
      throw UserError("[build] " + name + ": expected one input, received " +
                      std::to_string(inputs.size()));
    network = chain(inputs[0], layers, name, &this->inputs, &outputs);
  } else {
    const LayerRef own = subclass(dtypes);
    own->name = name;
    std::vector<Symbolic> symbols;
    for (const Shape& shape : inputs) symbols.push_back(Input(shape));
    network = Network(symbols, own.all(symbols));
    by_call = true;
    input_dtypes = dtypes;
  }
  if (heads && compiled) compiled->heads = heads(network.output_names());
}

void ModelState::build_for(const Source& data) {
  if (network.built()) return;
  std::vector<Shape> shapes;
  std::vector<Dtype> dtypes;
  for (const Field* field : fields_of(data, Role::x)) {
    shapes.push_back(field->sample.shape);
    dtypes.push_back(field->sample.dtype);
  }
  build(shapes, dtypes);
}

void ModelState::require_idle(const char* call) const {
  if (running)
    throw UserError("[" + std::string(call) + "] expected to be called between two calls of " +
                    running +
                    "(), received a call from a callback of one that runs; stop it with "
                    "model->stop_training = true, and call " +
                    call + "() behind it");
}
void ModelState::require_built(const char* call) const {
  if (network.built()) return;
  if (custom())
    throw UserError("[" + std::string(call) + "] " + name +
                    ": expected a model that is built; call build() with the shape of one sample, "
                    "or fit() or predict(), first");
  throw UserError(
      "[" + std::string(call) + "] " + name +
      ": expected an input shape; give it first, Sequential(Shape{28, 28, 1}, {...}), " +
      "or call build() or fit()");
}

const Compiled& ModelState::require_compiled(const char* call) const {
  if (compiled) return *compiled;
  throw UserError("[" + std::string(call) + "] " + name +
                  ": expected compile() before it; call compile({.optimizer = Adam(), " +
                  ".loss = \"sparse_categorical_crossentropy\"})");
}

Backend& ModelState::use_backend(int threads) {
  if (device) return where();
  if (!backend || (threads != 0 && threads != backend->threads())) {
    auto fresh = std::make_unique<CpuBackend>(threads);
    last.reset();
    backend = std::move(fresh);
  }
  backend->use();
  return *backend;
}

Backend& ModelState::where() const {
  return device ? device->backend_for(deterministic) : *backend;
}

Bytes ModelState::bytes_on_device() const {
  if (!device || !variables_here()) return 0;
  return align_up(variables->capacity() - variables->pinned_bytes(), device->backend().granule());
}

Compiled ModelState::settings() const {
  if (compiled) return *compiled;
  Compiled plain;
  if (const auto dtype = existing_dtype()) plain.dtype = *dtype;
  return plain;
}

bool ModelState::custom() const {
  return self && typeid(*self) != typeid(Model) && typeid(*self) != typeid(Sequential);
}

// What the optimisers of a step of the model's own keep is known when it was traced once.
void ModelState::trace_variables(const SampleSpec& sample, int64_t batch) {
  if (!traced_variables && custom()) trace_own_step(StepKind::train, sample, batch);
}

VariableLayout ModelState::layout(bool training) {
  constexpr int64_t kAnyBatch = 32;
  const Bytes alignment = device ? device->backend().alignment() : CpuBackend::kAlignment;
  if (training && custom()) {
    trace_variables(wanted_sample(network, settings()), kAnyBatch);
    return layout_variables(*traced_variables, alignment);
  }
  return layout_variables(step_variables(network, settings(), training), alignment);
}

// On a device they hold it open.
std::shared_ptr<Variables> ModelState::make_variables(VariableLayout layout, Bytes capacity) const {
  if (!device) return std::make_shared<Variables>(std::move(layout), capacity);
  const Bytes bytes = layout.bytes;
  return {new Variables(std::move(layout), bytes, device->backend()),
          [open = device](Variables* variables) { delete variables; }};
}

void ModelState::move_variables() {
  const std::shared_ptr<Variables> from = variables;
  const std::shared_ptr<Variables> made = make_variables(layout(false), 0);
  from->stepped();
  const auto& entries = made->layout().entries;
  for (size_t i = 0; i < network.weights().size(); ++i)
    std::memcpy(made->at(i), from->at(i), static_cast<size_t>(entries[i].meta.bytes()));
  made->written();
  made->stepped();
  variables = made;
  variables_on = device;
  fresh_optimizer = true;
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (home(i).variable->keeper == from) hold(i);
}

Variables& ModelState::weights(uint64_t seed) {
  if (!variables) {
    // Room for the optimiser's slots is set aside as addresses, so that a later fit() need not
    // move the weights.
    const bool known = compiled && (!custom() || traced_variables);
    auto made = make_variables(layout(false), known ? layout(true).bytes : 0);
    made->initialize(network, seed);
    made->stepped();
    variables = std::move(made);
    variables_on = device;
    for (size_t i = 0; i < network.weights().size(); ++i)
      if (!home(i).exists()) hold(i);
    return *variables;
  }
  if (variables_on != device) move_variables();
  variables->pin(variables->pinned_bytes());
  variables->stepped();  // eager code may have written them on the device
  bool copied = false;
  for (size_t i = 0; i < network.weights().size(); ++i) {
    const NetworkWeight& weight = network.weights()[i];
    if (home(i).variable->keeper == variables) continue;
    const Meta& meta = variables->layout().entries[i].meta;
    std::memcpy(variables->at(i), home(i).find(*weight.layer, weight.index, meta.dtype),
                static_cast<size_t>(meta.bytes()));
    copied = true;
  }
  if (copied) variables->written();
  return *variables;
}

void ModelState::require_weights() {
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (!home(i).exists()) {
      weights();
      return;
    }
}

Variables& ModelState::weights_to_write(uint64_t seed) {
  weights(seed);
  for (size_t i = 0; i < network.weights().size(); ++i) {
    if (home(i).variable->keeper == variables)
      home(i).detach_readers();
    else
      hold(i);
  }
  return *variables;
}

void ModelState::hold(size_t weight) const {
  VariableState& variable = *home(weight).variable;
  variable.name = network.weights()[weight].path;
  home(weight).move(
      variables, [all = variables.get(), weight] { return all->kernels_find(weight); },
      variables_on);
  variable.meta = variables->layout().entries[weight].meta;
}

const WeightHome& ModelState::home(size_t weight) const {
  const auto& values = network.weights()[weight].values;
  check(values != nullptr, "every weight of a model has a home");
  return static_cast<const WeightHome&>(*values);
}

std::optional<Dtype> ModelState::existing_dtype() const {
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (home(i).exists()) return home(i).variable->meta.dtype;
  return {};
}

bool ModelState::trains(size_t weight) const {
  const NetworkWeight& of = network.weights()[weight];
  return !of.state && of.layer->trains(of.index);
}

ModelState::~ModelState() {
  held_session.reset();
  if (variables && !variables->on_host()) {
    last.reset();
    device.reset();
    try {
      move_variables();
    } catch (const Error&) {  // a device that is broken keeps what it has
    }
    return;
  }
  if (!variables) return;
  VariableLayout weights = variables->layout();
  weights.bytes = weight_bytes(weights);
  std::erase_if(weights.entries,
                [](const auto& entry) { return entry.category != Category::parameters; });
  if (weights.entries.size() < variables->layout().entries.size()) variables->adopt(weights);
}

void ModelState::trace_own_step(StepKind kind, const SampleSpec& sample, int64_t batch) {
  for (;;) try {
      Graph graph = trace_step(network, step_settings(), {kind, batch}, sample);
      if (kind == StepKind::train) traced_variables = std::move(graph.variables);
      return;
    } catch (const NewMember& found) {
      if (!by_call) throw;
      add_member(found.layer, found.in);
    }
}

// Weights that exist keep their values, which are their homes'.
void ModelState::add_member(const std::shared_ptr<Layer>& layer, const std::vector<Shape>& in) {
  for (const auto& [known, shapes] : also) check(known != layer, "a layer joins a model once");
  also.emplace_back(layer, in);
  const std::vector<Shape> inputs = network.input_shapes();
  network = Network();
  variables.reset();
  traced_variables.reset();
  last.reset();
  held_session.reset();
  fresh_optimizer = true;
  build(inputs, input_dtypes);
}

}  // namespace pl

// Model: construction, compile, and its weights. Running it is model_run.cc.
#include "train/model.h"

#include <cstring>

#include "base/error.h"
#include "train/model_state.h"
#include "train/weights.h"

namespace pl {

LossChoice::LossChoice(Loss loss) {
  const bool from_logits = loss.from_logits;
  value = loss_from_name(loss.name);
  value->from_logits = from_logits;
}

Model::Model() : state_(std::make_unique<ModelState>()) {
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

void Sequential::build(const Shape& input) { state_->build(input); }

void Model::compile(const CompileOptions& options) {
  if (!options.optimizer.value)
    throw UserError(
        "[compile] optimizer: expected Adam(), SGD() or a name, received none; Keras's default, "
        "rmsprop, is not built yet");
  if (!options.loss.value)
    throw UserError("[compile] loss: expected one, such as \"sparse_categorical_crossentropy\"");
  for (const std::string& metric : options.metrics) check_metric(metric);
  if (policy_from_name(name_of(options.dtype)) != options.dtype)
    throw UserError("[compile] dtype: expected float32, float64 or kMixedBfloat16, received " +
                    std::string(name_of(options.dtype.variable)) + " variables and " +
                    std::string(name_of(options.dtype.compute)) + " computation");
  const Dtype existing = state_->settings().dtype.variable;
  if (state_->variables && options.dtype.variable != existing)
    throw UserError("[compile] dtype: expected " + std::string(name_of(existing)) +
                    ", in which the weights exist already, received " +
                    std::string(name_of(options.dtype.variable)) +
                    "; compile before the weights are first used");
  state_->compiled =
      Compiled{options.optimizer.value, *options.loss.value, options.metrics, options.dtype};
  state_->iterations = state_->epochs = 0;
  state_->fresh_optimizer = true;
  state_->last.reset();
}

int64_t Model::count_params() const {
  state_->require_built("count_params");
  return state_->network.parameters();
}

int64_t Model::iterations() const { return state_->iterations; }

Optimizer& Model::optimizer() {
  state_->require_compiled("optimizer");
  return *state_->compiled->optimizer;
}

void Model::save_weights(const std::string& path) {
  state_->require_built("save_weights");
  pl::save_weights(path, state_->weights());
}

void Model::load_weights(const std::string& path) {
  state_->require_built("load_weights");
  const SafetensorsFile file(path);
  check_weights(file, state_->layout(false));
  pl::load_weights(file, state_->weights());
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
  const Variables& variables = state_->weights();
  Tensors values;
  for (size_t i = 0; i < state_->network.weights().size(); ++i) {
    const Meta& meta = variables.layout().entries[i].meta;
    std::memcpy(values.emplace_back(meta).data(), variables.at(i),
                static_cast<size_t>(meta.bytes()));
  }
  return values;
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
  const Variables& variables = state_->weights();
  for (size_t i = 0; i < list.size(); ++i)
    std::memcpy(variables.at(i), values[i].data(), static_cast<size_t>(list[i].meta.bytes()));
}

}  // namespace pl

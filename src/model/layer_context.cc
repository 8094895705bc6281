#include "model/layer_context.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "model/network.h"
#include "model/remat.h"
#include "model/weight_home.h"
#include "op/cast.h"
#include "op/recorder.h"
#include "op/step_params.h"

namespace pl {
namespace {

thread_local LayerContext* current_context = nullptr;

constexpr Dim kBatch = 2;  // of the symbols with which layers are found

int64_t stream_of(const std::string& name, size_t call) {
  return static_cast<int64_t>(xxh3(name + "#" + std::to_string(call)) >> 1);
}

}  // namespace

LayerContext::LayerContext(bool sketches) : previous_(current_context), sketches_(sketches) {
  current_context = this;
}
bool LayerContext::sketching() {
  for (const LayerContext* at = current_context; at; at = at->previous_)
    if (at->sketches_) return true;
  return false;
}
LayerContext::~LayerContext() { current_context = previous_; }
LayerContext* LayerContext::current() { return current_context; }

namespace {

// Tokens are integers to the layers that read them, and numbers to layers with weights.
Tensor operand_of(const Layer& layer, size_t i, const Tensor& in, Dtype compute) {
  const bool tokens = layer.vocabulary(i) > 0;
  if (tokens && is_floating(in.dtype())) return cast(in, Dtype::int32);
  const bool integer = in.dtype() == Dtype::int32;
  return integer && !tokens && !layer.weights().empty() ? cast(in, compute) : in;
}

Tensors with_first(const Tensor& first, Tensors more) {
  more.insert(more.begin(), first);
  return more;
}

// What a sketch finds.
struct FoundLayers {
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<Shape> shapes;        // of their last outputs
  std::vector<int64_t> vocabulary;  // of each input
};

// Builds each layer for the shapes it is called with.
class Building final : public LayerContext {
 public:
  Building(FoundLayers& found, Recorder& recorder, const Tensors& inputs)
      : LayerContext(true),
        found_(found),
        recorder_(recorder),
        inputs_(inputs),
        params_(recorder.input("step_params", step_params_meta(), false)) {}
  const Tensor& params() const { return params_; }

  Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& given,
               std::optional<bool> /*training*/) override {
    std::vector<Shape> shapes;
    for (const Tensor& tensor : given) {
      if (!tensor.defined() || tensor.shape().rank() < 1)
        throw UserError("[build] " + layer->label() +
                        ": expected tensors with a row for each sample, received " +
                        (tensor.defined() ? tensor.meta().text() : "nothing"));
      shapes.push_back(tensor.shape().without_front());
    }
    const size_t at = place_of(layer);
    try {
      build_layer(*layer, shapes);
    } catch (const UserError& error) {
      throw build_error(layer->name, error);
    }
    Tensors in;
    for (size_t i = 0; i < given.size(); ++i) {
      note_tokens(*layer, i, given[i]);
      in.push_back(operand_of(*layer, i, given[i], Dtype::float32));
    }
    Tensors weights, more;
    for (const Weight& weight : layer->weights())
      weights.push_back(recorder_.variable(layer->name + "/" + weight.name + std::to_string(calls_),
                                           {Dtype::float32, weight.shape}, Category::parameters));
    const PathScope scope(&recorder_, layer->name);
    LayerCall made{in, weights, false, params_, stream_of(layer->name, calls_++)};
    made.more = &more;
    const Tensor out = run_layer(*layer, made);
    found_.shapes[at] = out.shape().without_front();
    return with_first(out, std::move(more));
  }

 private:
  size_t place_of(const std::shared_ptr<Layer>& layer) {
    auto& layers = found_.layers;
    const auto found = std::find(layers.begin(), layers.end(), layer);
    if (found != layers.end()) return static_cast<size_t>(found - layers.begin());
    layers.push_back(layer);
    name_layers(layers);
    found_.shapes.emplace_back();
    return layers.size() - 1;
  }

  void note_tokens(const Layer& layer, size_t i, const Tensor& given) {
    const int64_t count = layer.vocabulary(i);
    for (size_t x = 0; x < inputs_.size() && count > 0; ++x) {
      if (given.identity() != inputs_[x].identity()) continue;
      int64_t& known = found_.vocabulary[x];
      known = known == 0 ? count : std::min(known, count);
    }
  }

  FoundLayers& found_;
  Recorder& recorder_;
  const Tensors& inputs_;
  Tensor params_;
  size_t calls_ = 0;
};

// Hands each layer its part of the weights.
class Calling final : public LayerContext {
 public:
  // `first`: where the weights of `layers` begin among the outer layer's.
  Calling(const std::vector<std::shared_ptr<Layer>>& layers, const std::string& name,
          const LayerCall& outer, Recorder* recorder, size_t first = 0)
      : layers_(layers), name_(name), outer_(outer), recorder_(recorder), first_(first) {
    for (size_t i = 0; i < outer.in.size(); ++i)
      masks_.emplace(outer.in[i].identity(), outer.mask(i));
  }

  Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& given,
               std::optional<bool> training) override {
    size_t first = first_;
    for (const auto& known : layers_) {
      if (known == layer) return call_at(*layer, first, given, training);
      first += known->weights().size();
    }
    throw UserError("[call] " + layer->label() +
                    ": expected a layer that call() used when the model was built; use the same "
                    "layers whatever the data");
  }

  // Masks go from layer to layer, as in a network; what is computed between them has none.
  Tensor mask_of(const Tensor& tensor) const {
    const auto found = masks_.find(tensor.identity());
    return found == masks_.end() ? Tensor() : found->second;
  }

 private:
  // `first`: of its weights.
  Tensors call_at(const Layer& layer, size_t first, const Tensors& given,
                  std::optional<bool> training) {
    const PathScope scope(recorder_, layer.name);
    const Tensors in = cast_inputs(layer, given);
    Tensors masks, more, result_masks;
    for (const Tensor& tensor : given) masks.push_back(mask_of(tensor));
    const RematActivations activations(layer);
    const LayerCall made{
        .in = in,
        .weights = outer_.weights.subspan(first, layer.weights().size()),
        .training = training.value_or(outer_.training),
        .step_params = outer_.step_params,
        .stream = stream_of(name_ + layer.name, calls_++),
        .trainable = outer_.trainable && layer.trainable,
        .masks = masks,
        .more = &more,
        .result_masks = &result_masks,
        .losses = outer_.losses,
        .compute = layer.dtype ? layer.dtype->compute : outer_.compute,
    };
    const Tensor out = run_layer(layer, made);
    if (result_masks.empty()) result_masks = {layer.compute_mask(made)};
    Tensors results = with_first(out, std::move(more));
    for (size_t r = 0; r < results.size() && r < result_masks.size(); ++r)
      masks_[results[r].identity()] = result_masks[r];
    add_activity_loss(layer, out, outer_.losses);
    return results;
  }

  // To what a layer computes in, where some of them have a policy of their own.
  Tensors cast_inputs(const Layer& layer, const Tensors& in) const {
    const bool policies = std::any_of(layers_.begin(), layers_.end(),
                                      [](const auto& known) { return known->dtype.has_value(); });
    const Dtype compute = layer.dtype ? layer.dtype->compute : outer_.compute;
    Tensors cast_in;
    for (size_t i = 0; i < in.size(); ++i) {
      const Tensor operand = operand_of(layer, i, in[i], compute);
      const bool casts = policies && is_floating(operand.dtype());
      cast_in.push_back(casts ? cast(operand, compute) : operand);
    }
    return cast_in;
  }

  const std::vector<std::shared_ptr<Layer>>& layers_;
  const std::string& name_;
  const LayerCall& outer_;
  Recorder* recorder_;
  size_t first_;
  std::map<int64_t, Tensor> masks_;  // by the tensors' identities
  size_t calls_ = 0;
};

// One of several results of a FunctionLayer.
class ResultLayer final : public Layer {
 public:
  ResultLayer(std::shared_ptr<const FunctionLayer> of, size_t at) : of_(std::move(of)), at_(at) {
    name = "output_" + std::to_string(at + 1);
  }
  const char* kind() const override { return "Result"; }
  Shape build(const std::vector<Shape>&) override { return of_->results().at(at_); }
  Tensor call(const LayerCall& call) const override {
    return at_ == 0 ? call.in[0] : call.more_of_in[0].at(at_ - 1);
  }
  Tensor compute_mask(const LayerCall& call) const override {
    return call.result_masks_of_in[0].at(at_);
  }

 private:
  std::shared_ptr<const FunctionLayer> of_;
  size_t at_;
};

}  // namespace

SketchValues::SketchValues(Recorder& recorder) : recorder_(recorder) {
  recorder_.set_capture([this](const Tensor& value) { return constant(value.meta()); });
}
SketchValues::~SketchValues() { recorder_.set_capture(nullptr); }
Tensor SketchValues::constant(const Meta& meta) { return recorder_.input("constant", meta, false); }
Tensor SketchValues::read(const std::shared_ptr<VariableState>& variable) {
  if (variable->trainable) throw UserError(untrained_text(variable->name));
  return constant(variable->meta);
}

std::string untrained_text(const std::string& variable) {
  return variable +
         ": expected weights in call(), received a trainable variable that is none, which training "
         "would leave as it is; make it a weight with add_weight, or {.trainable = false}";
}

Tensor run_layer(const Layer& layer, const LayerCall& call) {
  if (layer.parts().empty()) return layer.call(call);
  std::vector<std::shared_ptr<Layer>> layers;
  for (const LayerMember& part : layer.parts()) layers.push_back(part.layer);
  Recorder* recorder = call.in.empty() ? nullptr : call.in[0].recorder();
  Calling calling(layers, layer.name, call, recorder, layer.own_weights());
  return layer.call(call);
}

void find_parts(Layer& layer, const std::vector<Shape>& in) {
  Recorder recorder;
  const RecorderScope scope(recorder);
  FoundLayers found{.layers = {}, .shapes = {}, .vocabulary = std::vector<int64_t>(in.size(), 0)};
  Tensors x, weights, more, result_masks, losses;
  try {
    for (size_t i = 0; i < in.size(); ++i) {
      const Dtype dtype = layer.vocabulary(i) > 0 ? Dtype::int32 : Dtype::float32;
      x.push_back(recorder.input("x" + std::to_string(i), {dtype, in[i].with_front(kBatch)}, true));
    }
    for (const Weight& weight : layer.weights())
      weights.push_back(
          recorder.variable(weight.name, {Dtype::float32, weight.shape}, Category::parameters));
    const SketchValues values(recorder);
    Building building(found, recorder, x);
    LayerCall made{x, weights, false, building.params(), 0};
    const std::vector<Tensors> more_of_in(x.size());
    made.more_of_in = more_of_in;
    made.more = &more;
    made.result_masks = &result_masks;
    made.losses = &losses;
    layer.call(made);
  } catch (const std::exception&) {
    if (!found.layers.empty()) throw;
  }
  std::vector<LayerMember> parts;
  size_t next = layer.weights().size();
  std::vector<Weight> all = layer.exchange_weights({});
  for (size_t m = 0; m < found.layers.size(); ++m) {
    LayerMember part{found.layers[m], found.layers[m]->name, {}, found.shapes[m]};
    for (const Weight& weight : part.layer->weights()) {
      part.weights.push_back(next++);
      all.push_back(weight);
      all.back().name = part.path + "/" + weight.name;
      if (part.layer->dtype) all.back().dtype = part.layer->dtype;
    }
    parts.push_back(std::move(part));
  }
  layer.exchange_weights(std::move(all));
  layer.set_parts(std::move(parts));
}

FunctionLayer::FunctionLayer(std::string kind, std::function<Body()> body)
    : kind_(std::move(kind)), body_(std::move(body)) {}

void FunctionLayer::find_layers(const std::vector<Shape>& in, const std::vector<bool>& integers) {
  Recorder recorder;
  const RecorderScope scope(recorder);
  Tensors x, y;
  for (size_t i = 0; i < in.size(); ++i)
    x.push_back(recorder.input(
        "x" + std::to_string(i),
        {integers[i] ? Dtype::int32 : Dtype::float32, in[i].with_front(kBatch)}, true));
  FoundLayers found{.layers = {}, .shapes = {}, .vocabulary = std::vector<int64_t>(in.size(), 0)};
  results_.clear();
  {
    const SketchValues values(recorder);
    Building building(found, recorder, x);
    y = body_()(x, false);
  }
  layers_ = std::move(found.layers);
  shapes_ = std::move(found.shapes);
  vocabulary_ = std::move(found.vocabulary);
  for (const Tensor& result : y) {
    if (!result.is_symbol() || result.shape().rank() < 1 || result.shape()[0] != kBatch)
      throw UserError("expected call() to answer tensors with a row for each sample, received " +
                      (result.defined() ? result.meta().text() : "nothing"));
    results_.push_back(result.shape().without_front());
  }
  if (y.empty()) throw UserError("expected call() to answer a tensor, received none");
  for (size_t i = 0; i < in.size(); ++i)
    if (integers[i] && vocabulary_[i] == 0) vocabulary_[i] = kAnyInteger;
}

Shape FunctionLayer::build(const std::vector<Shape>& in) {
  std::vector<bool> integers;
  for (size_t i = 0; i < in.size(); ++i)
    integers.push_back(i < expected_.size() &&
                       (expected_[i] == Dtype::int32 || expected_[i] == Dtype::int64));
  bool found = false;
  if (std::find(integers.begin(), integers.end(), true) != integers.end()) try {
      find_layers(in, integers);
      found = true;
    } catch (const UserError&) {  // ops that take no integers: as numbers, then
    }
  if (!found) {
    find_layers(in, std::vector<bool>(in.size(), false));
    for (size_t i = 0; i < in.size(); ++i) integers[i] = vocabulary_[i] > 0;
    if (std::find(integers.begin(), integers.end(), true) != integers.end())
      find_layers(in, integers);
  }
  for (const auto& [layer, shapes] : also_) {
    if (std::find(layers_.begin(), layers_.end(), layer) != layers_.end()) continue;
    layers_.push_back(layer);
    name_layers(layers_);
    shapes_.push_back(build_layer(*layer, shapes));
  }
  weights_.clear();
  for (const auto& layer : layers_)
    for (const Weight& weight : layer->weights()) {
      weights_.push_back(weight);
      weights_.back().name = layer->name + "/" + weight.name;
      if (layer->dtype) weights_.back().dtype = layer->dtype;
    }
  return results_[0];
}

std::vector<Symbolic> FunctionLayer::connect(const std::shared_ptr<Layer>& self,
                                             const std::vector<Symbolic>& in) {
  const std::vector<Symbolic> first = Layer::connect(self, in);
  if (results_.size() == 1) return first;
  std::vector<Symbolic> all;
  const auto function = std::static_pointer_cast<const FunctionLayer>(self);
  for (size_t r = 0; r < results_.size(); ++r)
    all.push_back(LayerRef(std::make_shared<ResultLayer>(function, r))(first[0]));
  return all;
}

Tensor FunctionLayer::call(const LayerCall& call) const {
  Calling calling(layers_, name, call, call.in[0].recorder());
  Tensors results = body_()(Tensors(call.in.begin(), call.in.end()), call.training);
  check(results.size() == results_.size(), "call() gives as many results as when it was built");
  if (call.result_masks)
    for (const Tensor& result : results) call.result_masks->push_back(calling.mask_of(result));
  if (call.more) call.more->assign(results.begin() + 1, results.end());
  return results[0];
}

std::vector<LayerMember> FunctionLayer::members() const {
  std::vector<LayerMember> list;
  size_t next = 0;
  for (size_t m = 0; m < layers_.size(); ++m) {
    LayerMember member{layers_[m], layers_[m]->name, {}, shapes_[m]};
    for (size_t w = 0; w < layers_[m]->weights().size(); ++w) member.weights.push_back(next++);
    list.push_back(std::move(member));
  }
  return list;
}

// Layers that call() uses are frozen one by one.
bool FunctionLayer::trains(size_t index) const {
  for (const auto& layer : layers_) {
    const size_t count = layer->weights().size();
    if (index < count) return trainable && layer->trains(index);
    index -= count;
  }
  return trainable;
}

}  // namespace pl

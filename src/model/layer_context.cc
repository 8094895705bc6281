#include "model/layer_context.h"

#include "base/error.h"
#include "base/hash.h"
#include "model/layer_calls.h"
#include "op/recorder.h"

namespace pl {
namespace {

thread_local LayerContext* current_context = nullptr;
thread_local RandomScope* current_random = nullptr;

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

RandomScope::RandomScope(const Tensor& step_params, int64_t stream)
    : params_(step_params), stream_(stream), previous_(current_random) {
  current_random = this;
}
RandomScope::~RandomScope() { current_random = previous_; }
RandomScope* RandomScope::current() { return current_random; }

int64_t random_stream(const Layer& layer, const std::string& call, size_t earlier,
                      const std::string& salt) {
  const std::string key =
      layer.seed ? "seed " + std::to_string(*layer.seed) + "#" + std::to_string(earlier) : call;
  return static_cast<int64_t>(xxh3(key + salt) >> 1);
}

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
  if (!layer.calls_layers()) return layer.call(call);
  const RandomScope random(call.step_params, call.stream);
  if (layer.parts().empty()) return layer.call(call);
  std::vector<std::shared_ptr<Layer>> layers;
  for (const LayerMember& part : layer.parts()) layers.push_back(part.layer);
  Recorder* recorder = call.in.empty() ? nullptr : call.in[0].recorder();
  Calling calling(layers, layer.name, call, recorder, layer.own_weights());
  return layer.call(call);
}

namespace {

// Runs call() on symbols; the layers that it calls are built on the way.
FoundLayers sketch_call(const Layer& layer, const std::vector<Shape>& in) {
  Recorder recorder;
  const RecorderScope scope(recorder);
  FoundLayers found{.layers = {}, .shapes = {}, .vocabulary = std::vector<int64_t>(in.size(), 0)};
  Tensors x, weights, more, result_masks, losses;
  for (size_t i = 0; i < in.size(); ++i) {
    const Dtype dtype = layer.vocabulary(i) > 0 ? Dtype::int32 : Dtype::float32;
    x.push_back(
        recorder.input("x" + std::to_string(i), {dtype, in[i].with_front(kSketchBatch)}, true));
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
  return found;
}

}  // namespace

void find_parts(Layer& layer, const std::vector<Shape>& in) {
  const FoundLayers found = sketch_call(layer, in);
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

}  // namespace pl

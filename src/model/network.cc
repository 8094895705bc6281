#include "model/network.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "model/layer_context.h"
#include "model/regularizer.h"
#include "model/remat.h"
#include "op/cast.h"
#include "op/recorder.h"
#include "op/scale.h"

namespace pl {

// Keras's rule: MaxPooling2D -> max_pooling2d, Conv2D -> conv2d, BatchNormalization ->
// batch_normalization.
std::string snake_case(const std::string& kind) {
  std::string out;
  for (size_t i = 0; i < kind.size(); ++i) {
    const bool upper = kind[i] >= 'A' && kind[i] <= 'Z';
    const bool after_lower = i > 0 && kind[i - 1] >= 'a' && kind[i - 1] <= 'z';
    if (upper && after_lower) out += '_';
    out += upper ? static_cast<char>(kind[i] - 'A' + 'a') : kind[i];
  }
  return out;
}

namespace {

std::string path_of(const Symbolic::Origin& origin) {
  return origin.path.empty() ? origin.layer->name : origin.path;
}

// The user's name, or Keras's: input, input_1, ...
std::string name_input(const std::string& given, const std::vector<std::string>& taken) {
  auto free = [&](const std::string& name) {
    return std::find(taken.begin(), taken.end(), name) == taken.end();
  };
  if (!given.empty() && !free(given))
    throw UserError("[build] " + given +
                    ": expected a name of its own for every input, received it twice");
  std::string name = given.empty() ? "input" : given;
  for (int n = 1; !free(name); ++n) name = "input_" + std::to_string(n);
  return name;
}

}  // namespace

void name_layers(const std::vector<std::shared_ptr<Layer>>& layers) {
  std::map<std::string, const Layer*> owner;
  for (const auto& layer : layers) {
    if (layer->name.empty()) continue;
    auto [at, fresh] = owner.emplace(layer->name, layer.get());
    if (!fresh && at->second != layer.get())
      throw UserError("[build] " + layer->name +
                      ": expected a name of its own for every layer, received it twice");
  }
  for (const auto& layer : layers) {
    const std::string base = snake_case(layer->kind());
    for (int n = 0; layer->name.empty(); ++n) {
      const std::string name = n == 0 ? base : base + "_" + std::to_string(n);
      if (owner.emplace(name, layer.get()).second) layer->name = name;
    }
  }
}

namespace {

using Origin = Symbolic::Origin;
using Slots = std::map<const Origin*, int>;
using WeightsOf = std::map<const Layer*, std::vector<int>>;

// The calls that outputs need, each behind those that it reads, with slots from `slots` on. Depth
// first without recursion: deep networks must not exhaust the stack.
std::vector<std::shared_ptr<const Origin>> call_order(const std::vector<Symbolic>& outputs,
                                                      Slots& slot) {
  std::vector<std::shared_ptr<const Origin>> order;
  std::vector<std::pair<Symbolic, size_t>> stack;
  int slots = static_cast<int>(slot.size());
  for (size_t o = outputs.size(); o-- > 0;) stack.emplace_back(outputs[o], 0);
  while (!stack.empty()) {
    auto& [symbol, next] = stack.back();
    const auto& origin = symbol.origin();
    if (slot.contains(origin.get())) {
      stack.pop_back();
    } else if (!origin->layer) {
      throw UserError("[build] expected every Input() to be listed among the network's inputs");
    } else if (next < origin->in.size()) {
      const Symbolic below = origin->in[next++];
      stack.emplace_back(below, 0);
    } else {
      slot[origin.get()] = slots++;
      order.push_back(origin);
      stack.pop_back();
    }
  }
  return order;
}

// The weights of all layers, each once; which of them a layer has. -1: another layer's.
WeightsOf gather_weights(const std::vector<std::shared_ptr<const Origin>>& order,
                         std::vector<NetworkWeight>& all) {
  WeightsOf weights_of;
  std::map<std::string, const Layer*> owner;
  std::map<const WeightValues*, int> homes;
  for (const auto& origin : order) {
    auto [at, fresh] = weights_of.emplace(origin->layer.get(), std::vector<int>());
    if (!fresh) continue;
    const std::string path = path_of(*origin);
    if (!owner.emplace(path, origin->layer.get()).second)
      throw UserError("[build] " + path +
                      ": expected a path of its own for every layer, received it twice; name the "
                      "models that are used as layers");
    const std::vector<Weight>& weights = origin->layer->weights();
    for (size_t w = 0; w < weights.size(); ++w) {
      const Weight& weight = weights[w];
      // A layer that two models inside this one share has its weights once.
      const auto known = weight.values ? homes.find(weight.values.get()) : homes.end();
      if (weight.owner || known != homes.end()) {
        at->second.push_back(weight.owner ? -1 : known->second);
        continue;
      }
      at->second.push_back(static_cast<int>(all.size()));
      if (weight.values) homes[weight.values.get()] = at->second.back();
      all.push_back({.path = path + "/" + weight.name,
                     .shape = weight.shape,
                     .initializer = weight.initializer,
                     .trainable = weight.trainable,
                     .regularizer = weight.regularizer,
                     .constraint = weight.constraint,
                     .state = !weight.trainable,
                     .layer = origin->layer,
                     .index = w,
                     .values = weight.values,
                     .dtype = weight.dtype ? weight.dtype : origin->layer->dtype,
                     .carried = weight.carried});
    }
  }
  return weights_of;
}

Network::Call call_of(const Origin& origin, const Slots& slot, const WeightsOf& weights_of) {
  Network::Call call{.layer = origin.layer,
                     .path = path_of(origin),
                     .out = slot.at(&origin),
                     .shape = origin.shape,
                     .training = origin.training};
  for (const Symbolic& in : origin.in) call.in.push_back(slot.at(in.origin().get()));
  call.weights = weights_of.at(origin.layer.get());
  for (size_t w = 0; w < call.weights.size(); ++w) {
    const Weight& weight = origin.layer->weights()[w];
    if (!weight.owner) continue;
    const auto owner = weights_of.find(weight.owner.get());
    if (owner == weights_of.end())
      throw UserError("[build] " + origin.layer->name + ": expected the layer whose " +
                      weight.name + " it shares to be part of the network");
    call.weights[w] = owner->second.at(weight.index);
  }
  return call;
}

}  // namespace

Network::Network(const std::vector<Symbolic>& inputs, const std::vector<Symbolic>& outputs) {
  Slots slot;
  for (const Symbolic& input : inputs) {
    if (input.origin()->layer)
      throw UserError("[build] expected Input() symbols as the network's inputs");
    slot[input.origin().get()] = static_cast<int>(inputs_.size());
    inputs_.push_back(input.shape());
    input_names_.push_back(name_input(input.origin()->name, input_names_));
  }
  const auto order = call_order(outputs, slot);
  std::vector<std::shared_ptr<Layer>> layers;
  for (const auto& origin : order)
    if (origin->path.empty()) layers.push_back(origin->layer);
  name_layers(layers);
  const WeightsOf weights_of = gather_weights(order, weights_);
  for (const auto& origin : order) calls_.push_back(call_of(*origin, slot, weights_of));
  for (const Symbolic& output : outputs) outputs_.push_back(slot.at(output.origin().get()));
  settle_trainable();
}

void Network::settle_trainable() {
  for (NetworkWeight& weight : weights_)
    weight.trainable = !weight.state && weight.layer->trains(weight.index);
  for (Call& call : calls_) call.trainable = call.layer->trainable;
}

namespace {

void add_members(const Network::Place& outer, std::vector<Network::Place>& list) {
  for (LayerMember& member : outer.layer->members()) {
    Network::Place place{.layer = std::move(member.layer),
                         .path = outer.path + "/" + member.path,
                         .weights = {},
                         .shape = member.shape,
                         .composite = false,
                         .inside = true};
    for (size_t w : member.weights) place.weights.push_back(outer.weights.at(w));
    place.composite = !place.layer->members().empty();
    list.push_back(place);
    add_members(place, list);
  }
}

}  // namespace

std::vector<Network::Place> Network::places() const {
  std::vector<Place> list;
  std::set<const Layer*> seen;
  for (const Call& call : calls_) {
    if (!seen.insert(call.layer.get()).second) continue;
    list.push_back({.layer = call.layer,
                    .path = call.path,
                    .weights = call.weights,
                    .shape = call.shape,
                    .composite = !call.layer->members().empty(),
                    .inside = false});
    const Place outer = list.back();
    add_members(outer, list);
  }
  return list;
}

std::shared_ptr<Layer> Network::get_layer(const std::string& name) const {
  std::shared_ptr<Layer> found;
  std::string known;
  for (const Place& place : places()) {
    if (place.path == name) return place.layer;
    known += (known.empty() ? "" : ", ") + place.path;
    if (place.layer->name != name) continue;
    if (found && found != place.layer)
      throw UserError("[get_layer] expected a path, received '" + name +
                      "', which several layers are called; there are " + known);
    found = place.layer;
  }
  if (!found) throw UserError("[get_layer] expected one of " + known + ", received '" + name + "'");
  return found;
}

std::vector<Shape> Network::output_shapes() const {
  std::vector<Shape> shapes;
  for (int slot : outputs_) {
    if (static_cast<size_t>(slot) < inputs_.size())
      shapes.push_back(inputs_[static_cast<size_t>(slot)]);
    for (const Call& call : calls_)
      if (call.out == slot) shapes.push_back(call.shape);
  }
  return shapes;
}

std::vector<std::string> Network::output_names() const {
  std::vector<std::string> names;
  std::map<std::string, int> used;
  for (int slot : outputs_) {
    const auto at = static_cast<size_t>(slot);
    const std::string name =
        at < inputs_.size() ? input_names_[at] : calls_[at - inputs_.size()].path;
    const int before = used[name]++;
    names.push_back(before == 0 ? name : name + "_" + std::to_string(before));
  }
  return names;
}

int64_t Network::vocabulary(size_t input) const {
  int64_t least = 0;
  for (const Call& call : calls_)
    for (size_t i = 0; i < call.in.size(); ++i) {
      const int64_t count = call.in[i] == static_cast<int>(input) ? call.layer->vocabulary(i) : 0;
      if (count > 0) least = least == 0 ? count : std::min(least, count);
    }
  return least;
}

int64_t Network::parameters() const {
  int64_t count = 0;
  for (const NetworkWeight& weight : weights_) count += weight.shape.elements();
  return count;
}

bool Network::has_policies() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const Call& call) { return call.layer->dtype.has_value(); });
}

Dtype Network::input_compute(size_t input, Dtype compute) const {
  std::optional<Dtype> widest;
  for (const Call& call : calls_)
    for (int slot : call.in)
      if (slot == static_cast<int>(input)) {
        const Dtype wanted = compute_of(call, compute);
        if (!widest || size_of(wanted) > size_of(*widest)) widest = wanted;
      }
  return widest.value_or(compute);
}

Tensor Network::cast_weight(size_t w, const Tensor& weight, Dtype compute) const {
  if (weights_[w].dtype) compute = weights_[w].dtype->compute;
  const bool kept =
      size_of(compute) >= size_of(weight.dtype()) || weight.shape().rank() < 2 || weights_[w].state;
  return kept ? weight : cast(weight, compute);
}

void add_activity_loss(const Layer& layer, const Tensor& out, Tensors* losses) {
  if (!losses || layer.activity_regularizer.empty()) return;
  const double batch = static_cast<double>(out.shape()[0]);
  losses->push_back(scale(penalty(layer.activity_regularizer, out), 1 / batch));
}

Tensors Network::call(const Tensors& inputs, const Tensors& weights, bool training,
                      const Tensor& step_params, Dtype compute, NetworkNotes* notes) const {
  check(inputs.size() == inputs_.size() && weights.size() == weights_.size(),
        "operands of a network");
  Tensors slots(inputs.size() + calls_.size()), masks(slots.size());
  std::vector<Tensors> more(slots.size()), result_masks(slots.size());
  for (size_t i = 0; i < inputs.size(); ++i) slots[i] = inputs[i];
  for (size_t i = 0; notes && i < notes->input_masks.size(); ++i) masks[i] = notes->input_masks[i];
  Recorder* recorder = inputs[0].recorder();
  Tensors narrow(weights.size());  // each weight is cast once a step
  auto own_weight = [&](size_t w) {
    if (!narrow[w].defined()) narrow[w] = cast_weight(w, weights[w], compute);
    return narrow[w];
  };
  const bool policies = has_policies();
  const std::string salt = notes && notes->salt != 0 ? "@" + std::to_string(notes->salt) : "";
  CallCounts counts;
  for (size_t c = 0; c < calls_.size(); ++c) {
    const Call& call = calls_[c];
    Tensors in, own, masks_in;
    std::vector<Tensors> more_in, result_masks_in;
    PathScope scope(recorder, call.path);
    for (int slot : call.in) {
      const Tensor& operand = slots[static_cast<size_t>(slot)];
      const bool casts = policies && is_floating(operand.dtype());
      in.push_back(casts ? cast(operand, compute_of(call, compute)) : operand);
      masks_in.push_back(masks[static_cast<size_t>(slot)]);
      more_in.push_back(more[static_cast<size_t>(slot)]);
      result_masks_in.push_back(result_masks[static_cast<size_t>(slot)]);
    }
    for (int weight : call.weights) own.push_back(own_weight(static_cast<size_t>(weight)));
    const int64_t stream = random_stream(*call.layer, call.path + "#" + std::to_string(c),
                                         counts.next(*call.layer), salt);
    const auto at = static_cast<size_t>(call.out);
    const LayerCall made{.in = in,
                         .weights = own,
                         .training = call.training.value_or(training),
                         .step_params = step_params,
                         .stream = stream,
                         .trainable = call.trainable,
                         .masks = masks_in,
                         .more = &more[at],
                         .more_of_in = more_in,
                         .result_masks = &result_masks[at],
                         .result_masks_of_in = result_masks_in,
                         .losses = notes ? &notes->losses : nullptr,
                         .compute = compute_of(call, compute)};
    const RematActivations activations(*call.layer);
    slots[at] = run_layer(*call.layer, made);
    masks[at] = result_masks[at].empty() ? call.layer->compute_mask(made) : result_masks[at][0];
    if (notes) add_activity_loss(*call.layer, slots[at], &notes->losses);
  }
  Tensors outputs;
  for (int slot : outputs_) {
    outputs.push_back(slots[static_cast<size_t>(slot)]);
    if (notes) notes->masks.push_back(masks[static_cast<size_t>(slot)]);
  }
  return outputs;
}

Network chain(const Shape& input, const std::vector<LayerRef>& layers, const std::string& model,
              std::vector<Symbolic>* inputs, std::vector<Symbolic>* outputs) {
  if (layers.empty()) throw UserError("[build] expected at least one layer, received none");
  std::vector<std::shared_ptr<Layer>> list;
  for (const LayerRef& layer : layers) list.push_back(layer.get());
  name_layers(list);
  const Symbolic start = Input(input);
  Symbolic last = start;
  try {
    for (const LayerRef& layer : layers) last = layer(last);
  } catch (const UserError& error) {
    if (model.empty()) throw;
    throw build_error(model, error);
  }
  if (inputs) *inputs = {start};
  if (outputs) *outputs = {last};
  return Network({start}, {last});
}

}  // namespace pl

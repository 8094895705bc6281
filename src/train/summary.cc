#include "train/summary.h"

#include <algorithm>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/table.h"
#include "plan/remat.h"
#include "plan/storage.h"
#include "train/session.h"

namespace pl {
namespace {

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string text = "(None";
  for (Dim dim : shape) text += ", " + std::to_string(dim);
  return text + ")";
}

struct LayerBytes {
  int64_t count = 0, slot_count = 0;
  Bytes weights = 0, gradients = 0, slots = 0;

  LayerBytes& operator+=(const LayerBytes& other) {
    count += other.count;
    slot_count += other.slot_count;
    weights += other.weights;
    gradients += other.gradients;
    slots += other.slots;
    return *this;
  }
};

// Sizes are grants, as on the plan's bill. A weight that the layer shares is its owner's.
LayerBytes layer_bytes(const Network& network, const Network::Place& place,
                       const Compiled* compiled) {
  LayerBytes sum;
  for (size_t w = 0; w < place.weights.size(); ++w) {
    if (place.layer->weights()[w].owner) continue;
    const NetworkWeight& weight = network.weights()[index(place.weights[w])];
    const Meta meta{compiled ? compiled->dtype.variable : Dtype::float32, weight.shape};
    const Bytes grant = align_up(meta.bytes(), CpuBackend::kAlignment);
    sum.count += meta.elements();
    sum.weights += grant;
    if (!compiled || !weight.trainable) continue;
    sum.gradients += grant;
    for (const Slot& slot : compiled->optimizer->slots(weight.path, meta)) {
      sum.slot_count += slot.meta.elements();
      sum.slots += align_up(slot.meta.bytes(), CpuBackend::kAlignment);
    }
  }
  return sum;
}

// The layer that a path belongs to, the innermost: a name may have slashes itself
// ("block_0/ln_1").
std::string layer_of(const std::vector<Network::Place>& places, const std::string& path) {
  std::string best;
  for (const Network::Place& place : places)
    if ((path == place.path || path.starts_with(place.path + "/")) &&
        place.path.size() > best.size())
      best = place.path;
  return best.empty() ? path.substr(0, path.find('/')) : best;
}

std::string totals(const Network& network, const LayerBytes& sum, const Compiled* compiled,
                   const PlanReport& report) {
  int64_t trainable = 0;
  for (const NetworkWeight& weight : network.weights())
    if (weight.trainable) trainable += weight.shape.elements();
  auto line = [](const char* what, int64_t count, Bytes bytes) {
    return std::string(" ") + what + ": " + grouped(count) + " (" + format_bytes(bytes) + ")\n";
  };
  const int64_t size = size_of(compiled ? compiled->dtype.variable : Dtype::float32);
  const int64_t fixed = sum.count - trainable;
  std::string out = line("Total params", sum.count, sum.count * size) +
                    line("Trainable params", trainable, trainable * size) +
                    line("Non-trainable params", fixed, fixed * size);
  if (!compiled) return out + " compile() first to see what training takes\n";
  int64_t slots = sum.slot_count;
  for (const Slot& slot : compiled->optimizer->shared_slots(compiled->dtype.variable))
    slots += slot.meta.elements();
  out += line("Optimizer params", slots, slots * size);
  const auto at_peak = [&](Category category) {
    return format_bytes(report.categories[index(static_cast<int>(category))]);
  };
  out += " Training with " + std::string(compiled->optimizer->name()) + " at batch size " +
         std::to_string(report.batch) + " in " + std::string(name_of(compiled->dtype)) + ":\n";
  out += "  at the fullest step: " + at_peak(Category::activations) + " of activations, " +
         at_peak(Category::gradients) + " of gradients, " + at_peak(Category::workspace) +
         " of workspace\n";
  out += "  planned (arena): " + format_bytes(report.arena) + "\n";
  out += "  process: " + format_bytes(report.process) + "\n";
  return out;
}

}  // namespace

std::vector<std::pair<std::string, Bytes>> kept_for_backward(const Prepared& prepared) {
  // Of a split step: its body, where the samples are.
  const bool split = !prepared.graph.loops.empty();
  const Graph& graph = split ? prepared.graph.loops[0].body : prepared.graph;
  const Plan& plan = split ? prepared.plan.loops[0] : prepared.plan;
  // The backward pass starts where the first gradient is made.
  size_t backward = plan.steps.size();
  for (size_t s = plan.steps.size(); s-- > 0;)
    for (ValueId out : graph.nodes[index(plan.steps[s].node)].out)
      if (graph.values[index(out)].category == Category::gradients) backward = s;
  // A place written before it and read behind it, with nothing written there in between.
  std::map<ByteOffset, ValueId> holds;
  for (size_t i = 0; i < graph.inputs.size(); ++i) holds[plan.input_at[i]] = graph.inputs[i];
  for (size_t s = 0; s < backward; ++s) {
    const Step& step = plan.steps[s];
    for (size_t o = 0; o < step.out.size(); ++o) {
      // What is written in place of an operand stays with the layer that opened the place.
      const bool in_place = std::find(step.in.begin(), step.in.end(), step.out[o]) != step.in.end();
      if (!in_place || !holds.contains(step.out[o]))
        holds[step.out[o]] = graph.nodes[index(step.node)].out[o];
    }
  }
  std::map<std::string, Bytes> bytes;
  for (size_t s = backward; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    for (ByteOffset at : step.in) {
      auto found = holds.find(at);
      if (found == holds.end()) continue;
      const Value& value = graph.values[index(found->second)];
      const Bytes size = align_up(value.meta.bytes(), plan.alignment);
      if (value.category == Category::input && value.rows) bytes["input"] += size;
      if (value.category == Category::activations) bytes[without_scopes(value.path)] += size;
      holds.erase(found);
    }
    for (ByteOffset at : step.out) holds.erase(at);
  }
  return {bytes.begin(), bytes.end()};
}

std::string summarize(const std::string& name, const Network& network, const Compiled* compiled,
                      const SessionPlan* plan, const PlanReport& report) {
  const std::vector<Network::Place> places = network.places();
  std::map<std::string, Bytes> kept;
  if (plan)
    for (const auto& [path, bytes] : kept_for_backward(plan->prepared.front()))
      kept[layer_of(places, path)] += bytes;
  std::vector<std::string> heading{"Layer (type)", "Output Shape", "Param #", "Parameters"};
  const bool policies = network.has_policies();
  if (policies) heading.insert(heading.begin() + 2, "dtype");
  if (compiled)
    for (const char* column : {"Gradients", "Optimizer", "Activations"}) heading.push_back(column);
  Table table(heading);
  Bytes all_kept = 0;
  auto add = [&](const std::string& label, const std::string& shape, const std::string& path,
                 const LayerBytes& layer, const std::string& dtype = "") {
    std::vector<std::string> row{label, shape, grouped(layer.count), format_bytes(layer.weights)};
    if (policies) row.insert(row.begin() + 2, dtype);
    if (compiled) {
      row.push_back(format_bytes(layer.gradients));
      row.push_back(format_bytes(layer.slots));
      row.push_back(format_bytes(kept[path]));
      all_kept += kept[path];
    }
    table.add(std::move(row));
  };
  // What is kept of the inputs is shown with the first.
  for (size_t i = 0; i < network.input_shapes().size(); ++i)
    add(network.input_names()[i] + " (Input)", shape_text(network.input_shapes()[i]),
        i == 0 ? "input" : "", {});
  LayerBytes sum;
  const Policy model = compiled ? compiled->dtype : Policy();
  for (const Network::Place& place : places) {
    // What is made of layers is their lines, and one for what it computes besides.
    if (place.composite && kept[place.path] == 0) continue;
    const LayerBytes layer = place.composite ? LayerBytes() : layer_bytes(network, place, compiled);
    const std::string kind = place.composite ? "ops of call()" : place.layer->kind();
    add(place.path + " (" + kind + ")", shape_text(place.shape), place.path, layer,
        std::string(name_of(place.layer->dtype.value_or(model))));
    sum += layer;
  }
  if (compiled && kept["loss"] > 0) {
    std::string names;
    for (const Head& head : heads_of(*compiled, network))
      if (head.loss) names += (names.empty() ? "" : ", ") + head.loss->name;
    add("loss (" + names + ")", "", "loss", {});
  }
  std::vector<std::string> last{"total", "", grouped(sum.count), format_bytes(sum.weights)};
  if (policies) last.insert(last.begin() + 2, "");
  if (compiled) {
    last.push_back(format_bytes(sum.gradients));
    last.push_back(format_bytes(sum.slots));
    last.push_back(format_bytes(all_kept));
  }
  table.add(std::move(last));
  return "Model: \"" + name + "\"\n" + table.text() + totals(network, sum, compiled, report);
}

}  // namespace pl

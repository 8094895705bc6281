#include "train/what_if.h"

#include <exception>

#include "base/error.h"
#include "base/table.h"
#include "train/session.h"

namespace pl {
namespace {

using Place = Network::Place;

// Layers that are not made of others.
std::vector<Place> places_of(const Network& network) {
  std::vector<Place> list = network.places();
  std::erase_if(list, [](const Place& place) { return place.composite; });
  return list;
}

// The same layers, built once more: after one of them became another.
Network built_again(const Network& network) {
  std::vector<Symbolic> slots, inputs, outputs;
  for (size_t i = 0; i < network.input_shapes().size(); ++i)
    inputs.push_back(Input(network.input_shapes()[i], network.input_names()[i]));
  slots = inputs;
  for (const Network::Call& call : network.calls()) {
    std::vector<Symbolic> in;
    std::vector<Shape> shapes;
    for (int slot : call.in) {
      in.push_back(slots[index(slot)]);
      shapes.push_back(in.back().shape());
    }
    slots.emplace_back(std::make_shared<Symbolic::Origin>(
        Symbolic::Origin{.layer = call.layer,
                         .in = in,
                         .shape = call.layer->build(shapes),
                         .path = call.path == call.layer->name ? "" : call.path,
                         .training = call.training}));
  }
  for (int slot : network.output_slots()) outputs.push_back(slots[index(slot)]);
  return Network(inputs, outputs);
}

// Puts weights aside while layers are built for other shapes; everything is as it was afterwards.
class PutAside {
 public:
  explicit PutAside(const Network& network) : network_(network) {
    for (const Place& place : network.places())
      aside_.emplace_back(place.layer, place.layer->exchange_weights({}));
  }
  ~PutAside() {
    for (auto& [layer, weights] : aside_) layer->exchange_weights(std::move(weights));
    built_again(network_);  // what layers remember of their shapes
  }
  PutAside(const PutAside&) = delete;
  PutAside& operator=(const PutAside&) = delete;

 private:
  const Network& network_;
  std::vector<std::pair<std::shared_ptr<Layer>, std::vector<Weight>>> aside_;
};

class Asking {
 public:
  Asking(const Network& network, const Compiled& compiled, const WhatIfPlanner& plan)
      : network_(network), compiled_(compiled), plan_(plan) {}

  WhatIfCase ask(const Place& place, const std::string& change) const {
    WhatIfCase answer{.layer = place.path, .kind = place.layer->kind(), .change = change};
    try {
      const SessionPlan plan = change == "activation" ? activation(place, answer.to)
                               : change == "dtype"    ? dtype(place, answer.to)
                                                      : size(place, answer.to);
      answer.arena = plan.arena;
      answer.process = plan.process();
      answer.ms = plan.ms;
    } catch (const std::exception&) {
      // It cannot be built, or be planned: the table has no figure there.
    }
    return answer;
  }

 private:
  SessionPlan activation(const Place& place, std::string& to) const {
    Compiled compiled = compiled_;
    auto& names = compiled.remat;
    const bool again = place.layer->remat || std::erase(names, place.path) > 0;
    to = again ? "kept" : "computed again";
    if (!again) names.push_back(place.path);
    const bool marked = std::exchange(place.layer->remat, false);
    const auto restore =
        std::shared_ptr<void>(nullptr, [&](void*) { place.layer->remat = marked; });
    return plan_(network_, compiled);
  }

  SessionPlan dtype(const Place& place, std::string& to) const {
    const Policy now = place.layer->dtype.value_or(compiled_.dtype);
    if (now.variable != Dtype::float32) throw UserError("there is no other");
    const bool narrow = now.compute != Dtype::float32;
    const Policy other = narrow ? Policy(Dtype::float32) : kMixedBfloat16;
    to = std::string(name_of(other.compute));
    const auto before = std::exchange(place.layer->dtype, other);
    const auto restore =
        std::shared_ptr<void>(nullptr, [&](void*) { place.layer->dtype = before; });
    return plan_(built_again(network_), compiled_);
  }

  SessionPlan size(const Place& place, std::string& to) const {
    int64_t* size = place.layer->size();
    if (!size || *size < 2) throw UserError("it has none");
    const int64_t before = *size;
    to = std::to_string(before / 2) + " of " + std::to_string(before);
    // Declared first, and so the last to end: layers are built again at their old size.
    const PutAside aside(network_);
    const auto restore = std::shared_ptr<void>(nullptr, [&](void*) { *size = before; });
    *size = before / 2;
    return plan_(built_again(network_), compiled_);
  }

  const Network& network_;
  const Compiled& compiled_;
  const WhatIfPlanner& plan_;
};

std::string difference(const std::optional<Bytes>& bytes, Bytes from) {
  if (!bytes) return "-";
  const Bytes by = *bytes - from;
  return by == 0 ? "0" : (by < 0 ? "-" : "+") + format_bytes(by < 0 ? -by : by);
}

}  // namespace

WhatIfReport what_if(const Network& network, const Compiled& compiled,
                     const std::vector<std::string>& changes, const WhatIfPlanner& plan) {
  for (const std::string& change : changes)
    if (change != "activation" && change != "dtype" && change != "size")
      throw UserError("[what_if] expected activation, dtype or size, received '" + change + "'");
  const SessionPlan now = plan(network, compiled);
  WhatIfReport report{.arena = now.arena,
                      .process = now.process(),
                      .ms = now.ms,
                      .batch = now.signatures[0].batch,
                      .cases = {}};
  const Asking asking(network, compiled, plan);
  for (const Place& place : places_of(network))
    for (const std::string& change : changes) report.cases.push_back(asking.ask(place, change));
  return report;
}

std::string to_text(const WhatIfReport& report) {
  std::vector<std::string> heading{"What if (type)"}, row;
  std::string layer;
  for (const WhatIfCase& one : report.cases) {
    if (!layer.empty() && one.layer != layer) break;
    layer = one.layer;
    heading.push_back(one.change);
  }
  Table table(heading, 1);
  auto finish = [&] {
    if (!row.empty()) table.add(std::move(row));
    row.clear();
  };
  for (const WhatIfCase& one : report.cases) {
    if (row.size() == heading.size()) finish();
    if (row.empty()) row.push_back(one.layer + " (" + one.kind + ")");
    const std::string to = one.process && !one.to.empty() ? one.to + " " : "";
    row.push_back(to + difference(one.arena, report.arena));
  }
  finish();
  return table.text() + " of planned memory (arena), " + format_bytes(report.arena) +
         " as it is at batch size " + std::to_string(report.batch) + "\n";
}

}  // namespace pl

// make_plan: storage, addresses, and the figures people ask for.
#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "plan/plan.h"
#include "plan/storage.h"

namespace pl {
namespace {

// No schedule of this graph uses less than its variables and what its largest step reads and
// writes.
Bytes schedule_floor(const Graph& graph, const Storage& storage, Bytes persistent) {
  Bytes largest = 0;
  std::vector<int> seen;
  for (size_t s = 0; s < storage.order.size(); ++s) {
    seen.clear();
    if (storage.workspace_block[s] >= 0) seen.push_back(storage.workspace_block[s]);
    const Node& node = graph.nodes[index(storage.order[s])];
    for (const auto* list : {&node.in, &node.out})
      for (ValueId id : *list)
        if (storage.block_of[index(id)] >= 0) seen.push_back(storage.block_of[index(id)]);
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    Bytes bytes = 0;
    for (int block : seen) bytes += storage.blocks[index(block)].bytes;
    largest = std::max(largest, bytes);
  }
  return persistent + largest;
}

// The category that a block counts for: that of the value in it, or workspace.
Category category_of(const Graph& graph, const Storage& storage, size_t block) {
  const ValueId value = storage.first_value[block];
  return value < 0 ? Category::workspace : graph.values[index(value)].category;
}

void fill_peak(const Graph& graph, const Storage& storage, const VariableLayout& layout,
               Plan& plan) {
  const int steps = static_cast<int>(storage.order.size());
  const auto live = live_bytes(storage.blocks, steps);
  plan.peak_step =
      live.empty() ? -1
                   : static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  for (const auto& entry : layout.entries)
    plan.at_peak[index(static_cast<int>(entry.category))] +=
        align_up(entry.meta.bytes(), plan.alignment);
  for (size_t b = 0; b < storage.blocks.size(); ++b)
    if (storage.blocks[b].start <= plan.peak_step && plan.peak_step <= storage.blocks[b].end)
      plan.at_peak[index(static_cast<int>(category_of(graph, storage, b)))] +=
          storage.blocks[b].bytes;
  for (Bytes bytes : plan.at_peak) plan.bound += bytes;
}

}  // namespace

const VariableLayout::Entry* VariableLayout::find(const std::string& path) const {
  for (const Entry& entry : entries)
    if (entry.path == path) return &entry;
  return nullptr;
}

VariableLayout layout_variables(const std::vector<Variable>& variables, Bytes alignment) {
  VariableLayout layout;
  for (const Variable& variable : variables) {
    check(!layout.find(variable.path), "two variables have the same path");
    layout.entries.push_back({variable.path, variable.meta, variable.category, layout.bytes});
    auto end = checked_add(layout.bytes, align_up(variable.meta.bytes(), alignment));
    if (!end) throw UserError("[plan] expected variables below 2^62 bytes in all");
    layout.bytes = *end;
  }
  return layout;
}

Plan make_plan(const Graph& graph, std::span<const Facts> facts, const VariableLayout& layout,
               Bytes alignment) {
  check(facts.size() == graph.nodes.size(), "one Facts per node");
  Storage storage = derive_storage(graph, facts, alignment);
  const int steps = static_cast<int>(storage.order.size());
  Plan plan;
  plan.alignment = alignment;
  plan.persistent = layout.bytes;
  plan.arena = layout.bytes + assign_addresses(storage.blocks, steps);
  for (const Variable& variable : graph.variables) {
    const auto* entry = layout.find(variable.path);
    check(entry && entry->meta == variable.meta, "a variable is missing from the layout");
    plan.variable_at.push_back(entry->at);
  }
  auto offset = [&](ValueId id) {
    const VariableId variable = storage.variable_of[index(id)];
    if (variable >= 0) return plan.variable_at[index(variable)];
    return plan.persistent + storage.blocks[index(storage.block_of[index(id)])].at;
  };
  Xxh3 keys;
  for (int s = 0; s < steps; ++s) {
    const NodeId id = storage.order[index(s)];
    Step step{.node = id};
    for (ValueId in : graph.nodes[index(id)].in) step.in.push_back(offset(in));
    for (ValueId out : graph.nodes[index(id)].out) step.out.push_back(offset(out));
    const int workspace = storage.workspace_block[index(s)];
    if (workspace >= 0) step.workspace_at = plan.persistent + storage.blocks[index(workspace)].at;
    plan.steps.push_back(std::move(step));
    plan.ms += facts[index(id)].ms;
    keys.update(facts[index(id)].key.data(), facts[index(id)].key.size() + 1);
  }
  for (ValueId id : graph.inputs) plan.input_at.push_back(offset(id));
  for (ValueId id : graph.keep) plan.keep_at.push_back(offset(id));
  plan.numerics = hex16(keys.digest());
  plan.floor = schedule_floor(graph, storage, plan.persistent);
  fill_peak(graph, storage, layout, plan);
  return plan;
}

std::vector<LiveValue> live_at_peak(const Graph& graph, const Plan& plan,
                                    std::span<const Facts> facts) {
  const Storage storage = derive_storage(graph, facts, plan.alignment);
  std::vector<LiveValue> result;
  for (size_t b = 0; b < storage.blocks.size(); ++b) {
    const Block& block = storage.blocks[b];
    if (block.start > plan.peak_step || block.end < plan.peak_step) continue;
    const ValueId value = storage.first_value[b];
    const NodeId node =
        value < 0 ? storage.order[index(block.start)] : graph.values[index(value)].producer;
    LiveValue live{.category = category_of(graph, storage, b), .bytes = block.bytes};
    live.op = node < 0 ? "input" : graph.nodes[index(node)].op;
    live.path = value >= 0 ? graph.values[index(value)].path : graph.nodes[index(node)].path;
    live.meta =
        value >= 0 ? graph.values[index(value)].meta : Meta{Dtype::uint8, Shape{block.bytes}};
    result.push_back(std::move(live));
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

std::string print(const Graph& graph, const Plan& plan) {
  std::string out = "arena " + std::to_string(plan.arena) + " persistent " +
                    std::to_string(plan.persistent) + " bound " + std::to_string(plan.bound) + "\n";
  for (const Step& step : plan.steps) {
    const Node& node = graph.nodes[index(step.node)];
    out += node.op + "(";
    for (size_t i = 0; i < step.in.size(); ++i)
      out += (i ? ", @" : "@") + std::to_string(step.in[i]);
    out += ") ->";
    for (ByteOffset at : step.out) out += " @" + std::to_string(at);
    if (!node.path.empty()) out += "  # " + node.path;
    out += "\n";
  }
  return out;
}

}  // namespace pl

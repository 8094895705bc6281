// The answer to a graph file: the fastest plan of the pool within the budget, as JSON and as text.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "plan/graph_file.h"
#include "plan/plan.h"

namespace pl {
namespace {

Recomputed recomputed(const Problem& problem, const std::vector<int>& steps) {
  Recomputed result;
  std::vector<bool> ran(problem.nodes.size(), false);
  for (int node : steps) {
    if (ran[index(node)]) {
      for (int value : problem.nodes[index(node)].writes) {
        ++result.values;
        result.bytes += problem.values[index(value)].bytes;
      }
      result.ms += problem.nodes[index(node)].ms;
    }
    ran[index(node)] = true;
  }
  return result;
}

Json pair(int value, ByteOffset at) { return Json::array().push(value).push(at); }

// Steps with the offset of each value they write.
Json schedule(const GraphFile& file, const std::vector<int>& steps, const Layout& layout) {
  Json result = Json::array();
  auto place = [&](int block) {
    return block < 0 ? ByteOffset{0} : file.persistent + layout.blocks[index(block)].at;
  };
  for (size_t s = 0; s < steps.size(); ++s) {
    const Problem::Node& node = file.problem.nodes[index(steps[s])];
    Json at = Json::array();
    for (size_t w = 0; w < node.writes.size(); ++w) {
      const int value = node.writes[w];
      const ByteOffset fixed = file.persistent_at[index(value)];
      at.push(
          pair(file.number[index(value)], fixed >= 0 ? fixed : place(layout.steps[s].writes[w])));
    }
    Json step = Json::object();
    step.set("node", steps[s]).set("at", at);
    step.set("workspace_at", place(layout.steps[s].workspace));
    result.push(std::move(step));
  }
  return result;
}

// Where values lie that no node writes: persistent ones and inputs.
Json places_before(const GraphFile& file, const Layout& layout) {
  Json result = Json::array();
  for (size_t v = 0; v < file.problem.values.size(); ++v) {
    if (file.problem.values[v].producer >= 0) continue;
    if (file.persistent_at[v] >= 0)
      result.push(pair(file.number[v], file.persistent_at[v]));
    else if (layout.source_block[v] >= 0)
      result.push(
          pair(file.number[v], file.persistent + layout.blocks[index(layout.source_block[v])].at));
  }
  return result;
}

Json frontier_of(const GraphFile& file, const std::vector<Candidate>& pool) {
  Json result = Json::array();
  for (const Candidate& plan : pool)
    result.push(Json::object()
                    .set("process_bytes", file.persistent + plan.bytes)
                    .set("step_ms", plan.ms)
                    .set("split", 1)
                    .set("recomputed_bytes",
                         recomputed(file.problem, *lower(file.problem, plan.drops)).bytes));
  return result;
}

// The fastest within the budget; without one, the first; where none fits, the smallest.
const Candidate& choose(const std::vector<Candidate>& pool, Bytes persistent,
                        std::optional<Bytes> budget, bool& fits) {
  fits = true;
  for (const Candidate& plan : pool)  // time ascends
    if (!budget || persistent + plan.bytes <= *budget) return plan;
  fits = false;
  return pool.back();
}

std::string describe(std::string_view name, const Json& json, const GraphAnswer& answer) {
  auto size = [&](const char* key) { return format_bytes(json.at(key, "answer").as_integer(key)); };
  char line[256];
  std::string out(name);
  std::snprintf(line, sizeof line, "  %lld nodes, %lld steps\n",
                static_cast<long long>(json.at("graph_nodes", "").as_integer("")),
                static_cast<long long>(json.at("plan_steps", "").as_integer("")));
  out += line;
  std::snprintf(line, sizeof line, "%s, %.6g ms (%.1f %% above the fastest)\n",
                size("process_bytes").c_str(), json.at("step_ms", "").as_real(""),
                100 * json.at("overhead", "").as_real(""));
  out += line;
  out += "without recomputing " +
         format_bytes(json.at("unlimited", "").at("process_bytes", "").as_integer("")) +
         "; the least found " + size("minimum_bytes") + "; no schedule needs less than " +
         size("bound_bytes") + "\n";
  if (const Json* frontier = json.find("frontier"))
    for (const Json& point : frontier->as_array("frontier")) {
      std::snprintf(line, sizeof line, "  %12s  %.6g ms\n",
                    format_bytes(point.at("process_bytes", "").as_integer("")).c_str(),
                    point.at("step_ms", "").as_real(""));
      out += line;
    }
  if (!answer.fits) out += "it does not fit; --memory " + size("minimum_bytes") + " does\n";
  return out;
}

}  // namespace

GraphAnswer plan_graph(const GraphFile& file, std::string_view name, std::optional<Bytes> budget,
                       bool frontier) {
  const auto begin = std::chrono::steady_clock::now();
  const auto pool = search(file.problem);
  GraphAnswer answer;
  const Candidate& plan = choose(pool, file.persistent, budget, answer.fits);
  const auto steps = *lower(file.problem, plan.drops);
  Layout layout = lay_out(file.problem, steps);
  assign_addresses(layout.blocks, static_cast<int>(steps.size()));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const Recomputed again = recomputed(file.problem, steps);
  const Bytes arena = file.persistent + plan.bytes, unlimited = file.persistent + pool[0].bytes,
              minimum = file.persistent + pool.back().bytes;
  Json remedies = Json::array();
  if (!answer.fits)
    remedies.push(Json::object()
                      .set("change", "--memory " + std::to_string(minimum))
                      .set("process_bytes", minimum)
                      .set("step_ms", pool.back().ms));
  answer.json = Json::object();
  answer.json.set("graph", name)
      .set("fits", answer.fits)
      .set("exact", true)
      .set("budget_bytes", budget ? Json(*budget) : Json())
      .set("process_bytes", arena)
      .set("arena_bytes", arena)
      .set("lower_bound_bytes", file.persistent + plan.peak)
      .set("persistent_bytes", file.persistent)
      .set("step_ms", plan.ms)
      .set("unlimited", Json::object()
                            .set("arena_bytes", unlimited)
                            .set("process_bytes", unlimited)
                            .set("step_ms", pool[0].ms))
      .set("overhead", pool[0].ms > 0 ? plan.ms / pool[0].ms - 1 : 0.0)
      .set("split", 1)
      .set("recomputed",
           Json::object().set("values", again.values).set("bytes", again.bytes).set("ms", again.ms))
      .set("offloaded_bytes", 0)
      .set("minimum_bytes", minimum)
      .set("bound_bytes", file.persistent + lower_bound(file.problem))
      .set("max_batch", Json())
      .set("graph_nodes", file.problem.nodes.size())
      .set("plan_steps", steps.size())
      .set("plan_ms", took.count())
      .set("remedies", remedies);
  if (frontier) answer.json.set("frontier", frontier_of(file, pool));
  answer.json.set("before", places_before(file, layout))
      .set("schedule", schedule(file, steps, layout));
  answer.text = describe(name, answer.json, answer);
  return answer;
}

}  // namespace pl

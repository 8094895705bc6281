// Shares no code with plan/remat.cc.
#include "plan/validate_remat.h"

#include <map>

#include "op/op.h"

namespace pl {
namespace {

std::string scope_in(const std::string& path) {
  size_t at = path.rfind("remat:", 0) == 0 ? 0 : path.find("/remat:");
  if (at == std::string::npos) return "";
  if (at > 0) ++at;
  return path.substr(0, path.find('/', at));
}

bool runs(const Node& node) { return node.loop >= 0 || get_op(node.op).alias.empty(); }

bool forward(const Graph& graph, const Node& node) {
  if (node.out.empty()) return true;
  for (ValueId id : node.out)
    if (graph.values[index(id)].category != Category::gradients) return true;
  return false;
}

}  // namespace

std::vector<std::vector<ValueId>> forgotten_behind(const Graph& graph,
                                                   const std::vector<ValueId>& content) {
  std::vector<std::vector<ValueId>> forgotten(graph.nodes.size());
  struct Scope {
    size_t end = 0;
    std::vector<ValueId> made;
  };
  std::map<std::string, Scope> scopes;
  std::vector<std::string> home(graph.values.size());  // per content: the scope that makes it
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.loop >= 0 || !runs(node) || !forward(graph, node)) continue;
    const std::string name = scope_in(node.path);
    if (name.empty()) continue;
    scopes[name].end = n;
    if (get_op(node.op).effects.writes_state) continue;
    for (ValueId id : node.out) {
      home[index(id)] = name;
      scopes[name].made.push_back(id);
    }
  }
  if (scopes.empty()) return forgotten;
  std::vector<bool> passed_on(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (!runs(node) || !forward(graph, node)) continue;
    const std::string name = node.loop >= 0 ? "" : scope_in(node.path);
    for (ValueId id : node.in) {
      const ValueId whose = content[index(id)];
      if (home[index(whose)] != name) passed_on[index(whose)] = true;
    }
  }
  for (ValueId id : graph.keep) passed_on[index(content[index(id)])] = true;
  for (const auto& [name, scope] : scopes)
    for (ValueId id : scope.made)
      if (!passed_on[index(id)]) forgotten[scope.end].push_back(id);
  return forgotten;
}

}  // namespace pl

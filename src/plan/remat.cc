#include "plan/remat.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace pl {
namespace {

constexpr std::string_view kScope = "remat:";

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, size_t count) {
  std::string path;
  for (size_t i = 0; i < count; ++i) path += (i ? "/" : "") + parts[i];
  return path;
}

bool wordly(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Whether the name's rest matches the path from `at` on, up to its end or the end of a part. `key`
// gets what was matched, without what `**` stands for.
bool matches(std::string_view name, std::string_view path, size_t at, std::string& key) {
  if (name.empty()) return at == path.size() || path[at] == '/';
  if (name.starts_with("**")) {
    for (size_t end = path.size() + 1; end-- > at;)
      if (matches(name.substr(2), path, end, key)) return true;
    return false;
  }
  const size_t before = key.size();
  if (name[0] == '*') {
    size_t end = at;
    while (end < path.size() && wordly(path[end])) ++end;
    for (; end > at; --end) {  // the longest first
      key.resize(before);
      key += path.substr(at, end - at);
      if (matches(name.substr(1), path, end, key)) return true;
    }
    key.resize(before);
    return false;
  }
  if (at >= path.size() || path[at] != name[0]) return false;
  key += name[0];
  if (matches(name.substr(1), path, at + 1, key)) return true;
  key.resize(before);
  return false;
}

// A node of the backward part makes gradients and nothing else.
bool is_backward(const Graph& graph, const Node& node) {
  return !node.out.empty() && std::all_of(node.out.begin(), node.out.end(), [&](ValueId out) {
    return graph.values[index(out)].category == Category::gradients;
  });
}

}  // namespace

std::string remat_scope(const std::string& path) {
  if (path.find(kScope) == std::string::npos) return "";
  const std::vector<std::string> parts = parts_of(path);
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].starts_with(kScope)) return joined(parts, i + 1);
  return "";
}

std::string without_scopes(const std::string& path) {
  if (path.find(kScope) == std::string::npos) return path;
  std::vector<std::string> parts = parts_of(path);
  std::erase_if(parts, [](const std::string& part) { return part.starts_with(kScope); });
  return joined(parts, parts.size());
}

std::vector<std::string> mark_remat(Graph& graph, const std::vector<std::string>& names) {
  std::set<std::string> used;
  std::map<std::string, std::string> marked;  // by path
  auto mark = [&](const std::string& path) -> const std::string& {
    auto [at, fresh] = marked.emplace(path, path);
    if (!fresh || !remat_scope(path).empty()) return at->second;
    for (const std::string& name : names) {
      std::string key;
      if (!matches(name, path, 0, key)) continue;
      used.insert(name);
      std::replace(key.begin(), key.end(), '/', '.');
      at->second = std::string(kScope) + key + "/" + path;
      break;
    }
    return at->second;
  };
  for (Node& node : graph.nodes) {
    if (node.path.empty()) continue;
    const std::string& path = mark(node.path);
    for (ValueId out : node.out)
      if (Value& value = graph.values[index(out)]; value.path == node.path) value.path = path;
    node.path = path;
  }
  std::vector<std::string> unused;
  for (const std::string& name : names)
    if (!used.contains(name)) unused.push_back(name);
  return unused;
}

void release_values(const Graph& graph, GraphProblem& made) {
  std::map<std::string, int> last;  // per scope: its last node of the forward part
  std::vector<std::string> scope;   // per node of the problem; empty: none, or the backward part
  std::vector<bool> backward;
  for (size_t n = 0; n < made.node_of.size(); ++n) {
    const Node& node = graph.nodes[index(made.node_of[n])];
    backward.push_back(is_backward(graph, node));
    scope.push_back(backward[n] || node.loop >= 0 ? "" : remat_scope(node.path));
    if (!scope[n].empty()) last[scope[n]] = static_cast<int>(n);
  }
  if (last.empty()) return;
  // What the forward part reads outside of the scope is handed on.
  std::vector<bool> handed_on(made.problem.values.size(), false);
  for (size_t n = 0; n < scope.size(); ++n)
    for (int value : made.problem.nodes[n].reads) {
      const int producer = made.problem.values[index(value)].producer;
      if (producer >= 0 && !backward[n] && scope[n] != scope[index(producer)])
        handed_on[index(value)] = true;
    }
  for (size_t v = 0; v < made.problem.values.size(); ++v) {
    Problem::Value& value = made.problem.values[v];
    if (value.producer < 0 || value.keep || handed_on[v] || made.outside[v]) continue;
    if (scope[index(value.producer)].empty() || !made.problem.nodes[index(value.producer)].rerun)
      continue;
    value.release = last[scope[index(value.producer)]];
  }
}

}  // namespace pl

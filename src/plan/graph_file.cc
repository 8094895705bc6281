// Reading: every number is checked before it is used as one.
#include "plan/graph_file.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace pl {
namespace {

constexpr int64_t kMostNodes = 10'000, kMostValues = 100'000, kMostLinks = 1'000'000;
constexpr Bytes kMostBytes = Bytes{1} << 60;  // of all values and workspaces together
constexpr double kMostMs = 1e12;

class Reading {
 public:
  Reading(std::string_view text, std::string_view what)
      : what_(what),
        json_(parse_json(text, what, {.depth = 8, .bytes = 100'000'000, .values = 4'000'000})) {}

  GraphFile run() {
    only_keys(json_, what_, {"values", "nodes", "keep"});
    read_values(list(json_.at("values", what_), "values", kMostValues));
    const auto& nodes = list(json_.at("nodes", what_), "nodes", kMostNodes);
    for (size_t n = 0; n < nodes.size(); ++n) read_node(nodes[n], static_cast<int>(n));
    if (const Json* keep = json_.find("keep"))
      for (const Json& item : list(*keep, "keep", kMostValues)) keep_value(item);
    finish_values();
    for (auto& node : file_.problem.nodes) node.kind = kind_of(node);
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& message) const {
    throw DataError("[graph] " + std::string(what_) + ": " + where + ": " + message);
  }

  void only_keys(const Json& object, std::string_view where,
                 std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object.as_object(where))
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail(std::string(where), "unknown key \"" + key.substr(0, 40) + "\"");
  }
  const Json::Array& list(const Json& json, const std::string& where, int64_t most) const {
    const auto& items = json.as_array(std::string(what_) + ": " + where);
    if (static_cast<int64_t>(items.size()) > most)
      fail(where, "expected at most " + std::to_string(most) + " entries, received " +
                      std::to_string(items.size()));
    return items;
  }
  Bytes bytes(const Json& json, const std::string& where) {
    const Bytes size = json.as_integer(std::string(what_) + ": " + where);
    if (size < 0 || size > kMostBytes - total_)
      fail(where,
           "expected bytes from 0, with a sum of at most 2^60, received " + std::to_string(size));
    total_ += size;
    return size;
  }
  bool flag(const Json& object, const char* key, bool otherwise, const std::string& where) const {
    const Json* json = object.find(key);
    return json ? json->as_bool(std::string(what_) + ": " + where + "." + key) : otherwise;
  }
  int value_id(const Json& json, const std::string& where) const {
    const int64_t id = json.as_integer(std::string(what_) + ": " + where);
    if (id < 0 || id >= values_)
      fail(where, "expected a value from 0 to " + std::to_string(values_ - 1) + ", received " +
                      std::to_string(id));
    return static_cast<int>(id);
  }

  void read_values(const Json::Array& values) {
    values_ = static_cast<int64_t>(values.size());
    current_.resize(values.size());
    for (size_t v = 0; v < values.size(); ++v) {
      const std::string where = "values[" + std::to_string(v) + "]";
      only_keys(values[v], where, {"bytes", "persistent", "name"});
      const Bytes size = bytes(values[v].at("bytes", std::string(what_) + ": " + where), where);
      const bool persistent = flag(values[v], "persistent", false, where);
      current_[v] = static_cast<int>(v);
      file_.number.push_back(static_cast<int>(v));
      file_.problem.values.push_back({.bytes = persistent ? 0 : size});
      file_.persistent_at.push_back(persistent ? file_.persistent : -1);
      if (persistent) file_.persistent += size;
    }
    written_.assign(values.size(), false);
    used_.assign(values.size(), false);
  }

  // Ids of a node's reads or writes, each once.
  std::vector<int> ids(const Json& node, const char* key, const std::string& where) {
    std::vector<int> result;
    const Json* json = node.find(key);
    if (!json) return result;
    for (const Json& item : list(*json, where + "." + key, kMostLinks)) {
      result.push_back(value_id(item, where + "." + key));
      if (++links_ > kMostLinks)
        fail(where, "expected at most " + std::to_string(kMostLinks) + " reads and writes in all");
    }
    std::vector<int> sorted = result;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end())
      fail(where + "." + key, "value " + std::to_string(*twice) + " is listed twice");
    return result;
  }

  void read_node(const Json& json, int n) {
    const std::string where = "nodes[" + std::to_string(n) + "]";
    only_keys(json, where, {"name", "ms", "reads", "writes", "workspace_bytes", "recompute"});
    Problem::Node node;
    node.ms = json.at("ms", std::string(what_) + ": " + where)
                  .as_real(std::string(what_) + ": " + where + ".ms");
    if (!(node.ms >= 0 && node.ms <= kMostMs))
      fail(where + ".ms", "expected a time from 0 to 1e12, received " + std::to_string(node.ms));
    if (const Json* workspace = json.find("workspace_bytes"))
      node.workspace = bytes(*workspace, where + ".workspace_bytes");
    node.rerun = flag(json, "recompute", true, where);
    const Json* name = json.find("name");
    file_.names.push_back(name ? name->as_string(std::string(what_) + ": " + where + ".name") : "");
    for (int value : ids(json, "reads", where)) {
      used_[index(value)] = true;
      node.reads.push_back(current_[index(value)]);
    }
    for (int value : ids(json, "writes", where)) write(value, n, node, where);
    file_.problem.nodes.push_back(std::move(node));
  }

  void write(int value, int n, Problem::Node& node, const std::string& where) {
    const bool persistent = file_.persistent_at[index(value)] >= 0;
    if (written_[index(value)])
      fail(where + ".writes", "value " + std::to_string(value) + " is written by an earlier node");
    written_[index(value)] = true;
    if (!persistent) {
      if (used_[index(value)])
        fail(where + ".writes", "value " + std::to_string(value) +
                                    " is read by this or an earlier node, before it is written");
      file_.problem.values[index(value)].producer = n;
      node.writes.push_back(value);
      return;
    }
    // The next version, in the same bytes; whoever reads the old one must come before.
    node.rerun = false;
    file_.problem.values[index(current_[index(value)])].replaced_by = n;
    current_[index(value)] = static_cast<int>(file_.problem.values.size());
    file_.problem.values.push_back({.bytes = 0, .producer = n});
    file_.number.push_back(value);
    file_.persistent_at.push_back(file_.persistent_at[index(value)]);
    node.writes.push_back(current_[index(value)]);
  }

  void keep_value(const Json& json) {
    const int value = value_id(json, "keep");
    Problem::Value& kept = file_.problem.values[index(current_[index(value)])];
    if (kept.keep) fail("keep", "value " + std::to_string(value) + " is listed twice");
    kept.keep = true;
    used_[index(value)] = true;
  }

  // What no node reads or writes and nobody keeps does not exist.
  void finish_values() {
    for (size_t v = 0; v < used_.size(); ++v)
      if (!used_[v] && !written_[v]) file_.problem.values[v].bytes = 0;
  }

  // Nodes with equal times over equal sizes are taken for repetitions.
  uint64_t kind_of(const Problem::Node& node) const {
    Xxh3 hash;
    auto add = [&](auto number) { hash.update(&number, sizeof number); };
    add(node.ms);
    add(node.workspace);
    add(node.rerun);
    for (int value : node.reads) add(file_.problem.values[index(value)].bytes);
    add(Bytes{-1});
    for (int value : node.writes) add(file_.problem.values[index(value)].bytes);
    return hash.digest() | 1;
  }

  std::string_view what_;
  Json json_;
  GraphFile file_;
  int64_t values_ = 0, links_ = 0;
  Bytes total_ = 0;
  std::vector<int> current_;  // per value of the file: its version that is there now
  std::vector<bool> written_, used_;
};

}  // namespace

GraphFile read_graph(std::string_view text, std::string_view what) {
  return Reading(text, what).run();
}

}  // namespace pl

#include "execute/cost_table.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace pl {
namespace {

constexpr const char* kFirstLine = "plimsoll costs 3";
constexpr size_t kMostEntries = 1024;
constexpr size_t kMostPoints = 16;
constexpr Bytes kMostText = 128 * kKiB;                   // of a file; a full table takes some 80
constexpr int64_t kMostRate = 1'000'000'000'000'000'000;  // FLOPs, bytes, or either per second
constexpr double kMostMs = 1e9;
constexpr int64_t kLeastNarrow = 100, kMostNarrow = 10000;  // in thousandths
constexpr double kNews = 0.1;
// A corrected roofline strays no further than this from the plain one.
constexpr double kMostCorrection = 16;

// The next word of a line, and the line behind it.
std::string_view take_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

// A whole number in [least, most], and nothing behind it in its word. Numbers are written as
// integers, times in picoseconds: reading and printing reals would touch a hundred KiB of tables.
bool take_number(std::string_view& line, int64_t least, int64_t most, double& value) {
  const std::string_view word = take_word(line);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  value = static_cast<double>(number);
  return error == std::errc() && end == word.data() + word.size() && number >= least &&
         number <= most;
}

bool take_ms(std::string_view& line, int64_t least, double& ms) {
  double ps = 0;
  if (!take_number(line, least, static_cast<int64_t>(kMostMs * kPsPerMs), ps)) return false;
  ms = ps / kPsPerMs;
  return true;
}

bool take_point(std::string_view& line, std::vector<Rates::Point>& points) {
  Rates::Point point{};
  if (points.size() >= kMostPoints || !take_number(line, 1, kMostRate, point.size) ||
      !take_number(line, 1, kMostRate, point.per_second) ||
      (!points.empty() && point.size <= points.back().size))
    return false;
  points.push_back(point);
  return true;
}

void put(std::string& out, double value) {
  out.append(" ").append(std::to_string(std::llround(value)));
}

}  // namespace

std::string call_text(const Graph& graph, const Node& node) {
  std::string text = node.op + node.attrs.print();
  for (ValueId id : node.in) text += "," + graph.values[index(id)].meta.text();
  text += ">";
  for (ValueId id : node.out) text += "," + graph.values[index(id)].meta.text();
  return text;
}

CallKey call_key(const Graph& graph, const Node& node, std::string_view numerics, int threads) {
  Xxh3 call, family;
  call.update(call_text(graph, node)).update("|").update(numerics);
  call.update("|").update(std::to_string(threads));
  family.update(node.op).update(node.attrs.print());
  for (const auto* values : {&node.in, &node.out}) {
    family.update(">");
    for (ValueId id : *values) {
      Meta meta = graph.values[index(id)].meta;
      if (meta.shape.rank() > 0) meta.shape = meta.shape.without_front();
      family.update(",").update(meta.text());
    }
  }
  return {call.digest(), family.digest()};
}

std::string machine_text(const Backend& backend) {
  return "0.1.0, " + backend.machine() + ", " + std::to_string(backend.threads()) + " threads";
}

CostTable::CostTable(int threads) : nominal_(nominal_rates(threads)), rates_(nominal_) {}
CostTable::CostTable(const Backend& backend) : nominal_(nominal_rates(backend)), rates_(nominal_) {}

CostTable CostTable::load(const std::string& folder, const Backend& backend) {
  CostTable table(backend);
  if (folder.empty()) return table;
  table.machine_ = machine_text(backend);
  table.path_ = folder + "/costs-" + hex16(xxh3(table.machine_)) + ".txt";
  // Asked for first: to throw for a first run would touch the pages of all unwind tables.
  if (::access(table.path_.c_str(), R_OK) != 0) return table;
  try {
    if (table.parse(read_text_file(table.path_, kMostText))) return table;
  } catch (const Error&) {
    // Too large, or no file.
  }
  CostTable fresh(backend);
  fresh.path_ = table.path_;
  fresh.machine_ = table.machine_;
  return fresh;
}

// All or nothing: a file with one bad line is not ours to trust.
bool CostTable::parse(std::string_view text) {
  rates_ = {};
  if (!text.ends_with('\n')) return false;  // cut off
  auto take_line = [&] {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    return line;
  };
  if (take_line() != kFirstLine || text.empty() || take_line() != machine_) return false;
  while (!text.empty())
    if (!parse_line(take_line())) return false;
  calibrated_ = !rates_.matmul.empty() && !rates_.memory.empty();
  if (!calibrated_) rates_ = nominal_;
  return true;
}

bool CostTable::parse_line(std::string_view line) {
  const std::string_view word = take_word(line);
  if (word == "call") return take_ms(line, 0, rates_.call_ms) && line.empty();
  if (word == "team") return take_ms(line, 0, rates_.team_ms) && line.empty();
  if (word == "narrow") {
    double permille = 0;
    if (!take_number(line, kLeastNarrow, kMostNarrow, permille)) return false;
    rates_.narrow = permille / 1e3;
    return line.empty();
  }
  if (word == "matmul") return take_point(line, rates_.matmul) && line.empty();
  if (word == "memory") return take_point(line, rates_.memory) && line.empty();
  if (word != "time" || entries_.size() >= kMostEntries) return false;
  Entry entry{};
  for (uint64_t* part : {&entry.key.call, &entry.key.family}) {
    const std::string_view hex = take_word(line);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), *part, 16);
    if (error != std::errc() || end != hex.data() + hex.size()) return false;
  }
  entry.op = find_op(take_word(line));
  double flops = 0, bytes = 0, ms = 0, narrow = 0;
  if (!take_number(line, 0, kMostRate, flops) || !take_number(line, 0, kMostRate, bytes) ||
      !take_number(line, 0, 1, narrow) || !take_ms(line, 1, ms) || !line.empty())
    return false;
  entry.cost = {flops, bytes, narrow != 0};
  entry.ms = ms;
  if (entry.op) entries_.push_back(entry);  // another version may have had other ops
  return true;
}

std::string CostTable::text() const {
  std::string out = std::string(kFirstLine) + "\n" + machine_ + "\n";
  if (calibrated_) {
    put(out += "call", rates_.call_ms * kPsPerMs);
    put(out += "\nteam", rates_.team_ms * kPsPerMs);
    put(out += "\nnarrow", rates_.narrow * 1e3);
    for (const auto& [name, points] :
         {std::pair{"\nmatmul", &rates_.matmul}, std::pair{"\nmemory", &rates_.memory}})
      for (const Rates::Point& point : *points) {
        put(out += name, point.size);
        put(out, point.per_second);
      }
    out += "\n";
  }
  for (const Entry& entry : entries_) {
    out.append("time ").append(hex16(entry.key.call)).append(" ");
    out.append(hex16(entry.key.family)).append(" ").append(entry.op->name);
    put(out, entry.cost.flops);
    put(out, entry.cost.bytes);
    put(out, entry.cost.narrow ? 1 : 0);
    put(out, entry.ms * kPsPerMs);
    out += "\n";
  }
  return out;
}

void CostTable::calibrate(Rates rates) {
  rates_ = std::move(rates);
  calibrated_ = true;
}

// One of the family if there is any, else of the op; of those the nearest in FLOPs and bytes.
// Family first: a plan that splits the batch must not look faster because its calls were corrected
// by others than the whole batch's.
const CostTable::Entry* CostTable::nearest(uint64_t family, const Op& op, const Cost& cost) const {
  const Entry* best = nullptr;
  double least = 0;
  for (const Entry& entry : entries_) {
    if (entry.op != &op) continue;
    if (best && best->key.family == family && entry.key.family != family) continue;
    const double distance = std::fabs(std::log((cost.flops + 1) / (entry.cost.flops + 1))) +
                            std::fabs(std::log((cost.bytes + 1) / (entry.cost.bytes + 1)));
    const bool closer_kin = best && best->key.family != family && entry.key.family == family;
    if (best && !closer_kin && distance >= least) continue;
    best = &entry;
    least = distance;
  }
  return best;
}

double CostTable::ms(const CallKey& key, const Op& op, const Cost& cost) const {
  for (const Entry& entry : entries_)
    if (entry.key.call == key.call) return entry.ms;
  const double plain = roofline_ms(rates_, op, cost);
  const Entry* like = nearest(key.family, op, cost);
  if (!like) return plain;
  const double ratio = like->ms / roofline_ms(rates_, op, like->cost);
  return plain * std::clamp(ratio, 1 / kMostCorrection, kMostCorrection);
}

bool CostTable::knows(const CallKey& key) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.key.call == key.call; });
}

bool CostTable::learn(const CallKey& key, const Op& op, const Cost& cost, double ms) {
  if (!(ms >= 1 / kPsPerMs && ms <= kMostMs) || !op.alias.empty()) return false;
  const Entry entry{key, &op, cost, ms};
  for (Entry& old : entries_) {
    if (old.key.call != key.call) continue;
    if (std::fabs(old.ms - ms) <= kNews * old.ms) return false;
    old = entry;
    return true;
  }
  if (entries_.size() >= kMostEntries) entries_.erase(entries_.begin());
  entries_.push_back(entry);
  return true;
}

void CostTable::save() const {
  if (path_.empty()) return;
  make_directories(path_.substr(0, path_.rfind('/')));
  write_file_atomically(path_, text());
}

std::string CostTable::hash() const { return hex16(xxh3(text())); }

Bytes CostTable::bytes() {
  return static_cast<Bytes>(kMostEntries * sizeof(Entry)) * 2 + kMostText;
}

bool nominal_costs_wanted() { return environment("PLIMSOLL_COSTS") == "nominal"; }

CostTable machine_costs(const Backend& backend) {
  return CostTable::load(nominal_costs_wanted() ? "" : cache_folder(), backend);
}

namespace {

// Learns from the steps of one graph, without its loops' bodies.
bool learn_graph(CostTable& table, const Graph& graph, const Plan& plan, const GraphFacts& facts,
                 std::span<const double> step_ms, int threads) {
  struct Sum {
    CallKey key;
    NodeId node;
    double ms = 0, count = 0;
  };
  std::map<uint64_t, Sum> sums;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const NodeId id = plan.steps[s].node;
    const Node& node = graph.nodes[index(id)];
    if (node.loop >= 0) continue;
    const CallKey key = call_key(graph, node, facts.nodes[index(id)].key, threads);
    Sum& sum = sums[key.call];
    sum.key = key;
    sum.node = id;
    sum.ms += step_ms[s];
    ++sum.count;
  }
  bool news = false;
  for (const auto& [call, sum] : sums) {
    const Node& node = graph.nodes[index(sum.node)];
    Metas in, out;
    for (ValueId value : node.in) in.push_back(graph.values[index(value)].meta);
    for (ValueId value : node.out) out.push_back(graph.values[index(value)].meta);
    const Op& op = get_op(node.op);
    if (table.learn(sum.key, op, op.cost(in, out, node.attrs), sum.ms / sum.count)) news = true;
  }
  return news;
}

}  // namespace

bool learn_steps(CostTable& table, const Graph& graph, const Plan& plan, const GraphFacts& facts,
                 std::span<const double> step_ms, int threads) {
  size_t count = plan.steps.size();
  for (const Plan& body : plan.loops) count += body.steps.size();
  check(step_ms.size() == count, "one time per step");
  bool news = learn_graph(table, graph, plan, facts, step_ms, threads);
  size_t at = plan.steps.size();
  for (size_t l = 0; l < plan.loops.size(); ++l) {
    const size_t steps = plan.loops[l].steps.size();
    if (learn_graph(table, graph.loops[l].body, plan.loops[l], facts.loops[l],
                    step_ms.subspan(at, steps), threads))
      news = true;
    at += steps;
  }
  return news;
}

}  // namespace pl

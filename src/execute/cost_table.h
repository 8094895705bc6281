// CostTable: what calls cost on this machine. A timed call answers with its time; any other with
// the roofline, corrected by a timed call of its family, or of its op. The table is a small text
// file in the cache folder; whatever is wrong with that file reads as no table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "execute/cost_model.h"
#include "plan/plan.h"

namespace pl {

// A node's call in words: op, attributes, metas.
std::string call_text(const Graph& graph, const Node& node);

struct CallKey {
  uint64_t call = 0;    // what decides the time: those words, the kernel's numerics key, threads
  uint64_t family = 0;  // equal for calls that differ in rows (dimension 0) alone: of a split batch
};
CallKey call_key(const Graph& graph, const Node& node, std::string_view numerics, int threads);

// The machine in words: processor, instruction set, threads, version of the engine. Times hold for
// equal words only.
std::string machine_text(const Backend& backend);

class CostTable {
 public:
  explicit CostTable(int threads = 1);  // nominal rates, no times
  explicit CostTable(const Backend& backend);

  // The table of `machine` in `folder`; an empty folder, or no file that can be trusted, gives a
  // nominal one. save() goes back there.
  static CostTable load(const std::string& folder, const Backend& backend);

  bool calibrated() const { return calibrated_; }
  void calibrate(Rates rates);

  double ms(const CallKey& key, const Op& op, const Cost& cost) const;
  bool knows(const CallKey& key) const;         // it was timed
  bool kept() const { return !path_.empty(); }  // save() writes a file

  // Notes a measured time. True when that is news: a new call, or more than 10 % from what was
  // there. Ignores what is not a time.
  bool learn(const CallKey& key, const Op& op, const Cost& cost, double ms);

  // Writes the file, or throws the write's error. Several processes may: the last one wins.
  void save() const;

  std::string hash() const;  // of all that ms() depends on, 16 hex digits
  size_t size() const { return entries_.size(); }

  // Bound of what a table holds on the heap, reading its file included. The same for every table,
  // so that a plan's bytes do not depend on what was learned.
  static Bytes bytes();

 private:
  struct Entry {
    CallKey key;
    const Op* op;
    Cost cost;
    double ms;
  };
  std::string text() const;
  bool parse(std::string_view text);
  bool parse_line(std::string_view line);
  const Entry* nearest(uint64_t family, const Op& op, const Cost& cost) const;

  std::string path_, machine_;
  Rates nominal_, rates_;
  bool calibrated_ = false;
  std::vector<Entry> entries_;  // oldest first
};

// The table of this machine in the cache folder. PLIMSOLL_COSTS=nominal asks for nominal rates and
// no times, which then are not kept either: plans are the same everywhere and in every run.
CostTable machine_costs(const Backend& backend);
bool nominal_costs_wanted();

// Learns from the steps of a plan: `step_ms` has one time per step of the plan, then of its loops'
// bodies. Equal calls of one graph count as their mean. True when something was news.
bool learn_steps(CostTable& table, const Graph& graph, const Plan& plan, const GraphFacts& facts,
                 std::span<const double> step_ms, int threads);

}  // namespace pl

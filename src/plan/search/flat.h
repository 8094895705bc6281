// Flat: a Problem as flat arrays, made once for a search, and the scratch that its inner loop
// needs. Scoring one decision of a step with 700 nodes takes some microseconds.
#pragma once

#include "plan/problem.h"

namespace pl {

struct Flat {
  explicit Flat(const Problem& problem);

  std::span<const int> reads(int node) const { return slice(read_list, read_at, node); }
  std::span<const int> writes(int node) const { return slice(write_list, write_at, node); }
  std::span<const int> uses(int value) const { return slice(use_list, use_at, value); }
  // Values that may share bytes, as (read, write), sorted by output.
  std::span<const InOut> pairs(int node) const {
    return {pair_list.data() + pair_at[index(node)], pair_list.data() + pair_at[index(node) + 1]};
  }

  // What scoring walks over: a node's writes, then its reads, without those that have no bytes
  // (variables), each with its size beside it.
  struct Touch {
    int value;
    Bytes bytes;
  };
  struct Walk {
    int first, reads, end;     // touches: writes [first, reads), reads [reads, end)
    int pairs = 0, pairs_end;  // into pair_list
    bool one_output;           // all pairs are of one write
    int replaced;  // the first node that replaces something it reads; past the end: none
    Bytes workspace;
    double ms;
  };

  int nodes = 0, values = 0;
  std::vector<Walk> walks;  // per node
  std::vector<Touch> touches;
  std::vector<int> read_at, read_list, write_at, write_list, use_at, use_list, pair_at;
  std::vector<InOut> pair_list;
  std::vector<double> ms;                     // per node
  std::vector<Bytes> workspace;               // per node
  std::vector<uint8_t> rerun;                 // per node
  std::vector<Bytes> bytes;                   // per value
  std::vector<int> producer;                  // per value
  std::vector<int> replaced_by;               // per value
  std::vector<uint8_t> keep;                  // per value
  std::vector<std::pair<int, int>> released;  // (node, value behind it), sorted
  Bytes kept_bytes = 0;                       // of all kept values
  Bytes unread_source_bytes = 0;  // sources that nobody reads or keeps: live at step 0 only

 private:
  void make_walks();
  static std::span<const int> slice(const std::vector<int>& list, const std::vector<int>& at,
                                    int i) {
    return {list.data() + at[index(i)], list.data() + at[index(i) + 1]};
  }
};

// What the search compares. `excess` sums over the steps what lies above the target.
struct Score {
  Bytes peak = 0;
  double excess = 0;
  double ms = 0;
};

// Lowers and scores decisions of one Flat. Holds scratch only: equal calls give equal answers.
class Scorer {
 public:
  explicit Scorer(const Flat& flat);

  // `drops` sorted by (at, value). False: see lower(). The steps are then unspecified.
  bool lower(std::span<const Drop> drops, std::vector<int>& steps);
  // `live`, when given, gets the live bytes at each step.
  Score score(std::span<const int> steps, Bytes target, std::vector<Bytes>* live = nullptr);

  const Flat& flat() const { return flat_; }
  int64_t walked() const { return walked_; }  // steps scored so far: the measure of effort

 private:
  // Bytes that writes of the node take over from reads whose copies die there.
  Bytes taken_over(const Flat::Walk& walk);
  bool lower_with_releases(std::span<const Drop> drops, std::vector<int>& steps);
  bool run_bay(int at, std::span<const Drop> dropped, std::vector<int>& steps);

  const Flat& flat_;
  int64_t stamp_ = 0, walked_ = 0;
  std::vector<int64_t> dropped_in_;  // per value: stamp of the bay it is dropped in
  std::vector<uint8_t> gone_;        // per value: released, and not computed again yet
  std::vector<int64_t> in_bay_;      // per node: stamp of the bay that runs it
  std::vector<int64_t> taken_in_;    // per value: stamp of the step in which its bytes are taken
  std::vector<int> bay_;
  std::vector<uint8_t> needed_;  // per value: a later step reads the copy that is there now
};

bool by_place(const Drop& a, const Drop& b);  // by (at, value)

}  // namespace pl

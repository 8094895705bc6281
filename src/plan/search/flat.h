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
  // Marks of stays (with_marks): numbers behind the nodes', where there are copies.
  bool marked = false;
  int left(int value) const { return nodes + value; }
  int comes_back(int value) const { return nodes + values + value; }
  std::vector<Walk> walks;  // per node, and per mark
  std::vector<Touch> touches;
  std::vector<int> read_at, read_list, write_at, write_list, use_at, use_list, pair_at;
  std::vector<InOut> pair_list;
  std::vector<double> ms;                     // per node
  std::vector<Bytes> workspace;               // per node
  std::vector<uint8_t> rerun;                 // per node
  std::vector<uint8_t> joins;                 // per node
  std::vector<Bytes> bytes;                   // per value
  std::vector<int> producer;                  // per value
  std::vector<int> replaced_by;               // per value
  std::vector<uint8_t> keep;                  // per value
  std::vector<std::pair<int, int>> released;  // (node, value behind it), sorted
  std::vector<uint8_t> leaves;                // per value: may be away
  Problem::Copies copies;
  Bytes kept_bytes = 0;           // of all kept values
  Bytes unread_source_bytes = 0;  // sources that nobody reads or keeps: live at step 0 only

 private:
  void add_marks();
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

  // See schedule(); `drops` sorted as above. And the time of the steps with these copies.
  void schedule(std::span<const Drop> drops, std::span<const int> steps, std::vector<Stay>& stays);
  double time(std::span<const int> steps, std::span<const Stay> stays);
  double copy_ms(int value) const;
  // Puts marks for the away drops among the steps, and answers how long steps wait for copies.
  // Nothing where the other memory has no room for them.
  std::optional<double> mark(std::span<const Drop> drops, std::vector<int>& steps);

  const Flat& flat() const { return flat_; }
  int64_t walked() const { return walked_; }  // steps scored so far: the measure of effort

 private:
  // Bytes that writes of the node take over from reads whose copies die there.
  Bytes taken_over(const Flat::Walk& walk);
  bool lower_with_releases(std::span<const Drop> drops, std::vector<int>& steps);
  bool run_bay(int at, std::span<const Drop> dropped, std::vector<int>& steps);
  void find_stays(std::span<const Drop> drops, std::span<const int> steps,
                  std::vector<Stay>& stays);
  void send_out(std::span<const int> steps, std::vector<Stay>& stays);
  void bring_in(std::span<const int> steps, std::vector<Stay>& stays);
  Bytes most_away(std::span<const Stay> stays);

  const Flat& flat_;
  int64_t stamp_ = 0, walked_ = 0;
  std::vector<int64_t> dropped_in_;  // per value: stamp of the bay it is dropped in
  std::vector<uint8_t> gone_;        // per value: released, and not computed again yet
  std::vector<int64_t> in_bay_;      // per node: stamp of the bay that runs it
  std::vector<int64_t> taken_in_;    // per value: stamp of the step in which its bytes are taken
  std::vector<int> bay_;
  std::vector<uint8_t> needed_;  // per value: a later step reads the copy that is there now
  // Of schedules.
  std::vector<int> touched_;    // per value: the last step that touched it
  std::vector<int> wanted_at_;  // per value: the node whose bay it comes back for
  std::vector<double> begins_;  // per step and one more
  std::vector<size_t> order_;   // of stays
  std::vector<double> out_ends_, in_ends_;
  std::vector<Stay> stays_;
  std::vector<int> unmarked_;
};

// The steps with marks for these stays.
void put_marks(const Flat& flat, std::span<const int> steps, std::span<const Stay> stays,
               std::vector<int>& marked);

bool by_place(const Drop& a, const Drop& b);  // by (at, value)
Drops placed(Drops drops);                    // sorted so, as a Scorer wants them

}  // namespace pl

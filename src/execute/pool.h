// Pool: every plan of a step that is worth having, made without looking at a budget or a clock. A
// budget picks the fastest entry that fits; the least of them is the minimum.
#pragma once

#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "execute/kernel_book.h"
#include "execute/prepared.h"

namespace pl {

// What the planner may do.
struct Switches {
  bool recompute = true;
  // Into so many parts: micro-batches, or, for a multiple of the batch, bands of each sample's
  // image rows. By default whatever serves.
  std::optional<int64_t> split;
  // On a device: of host memory, for values that leave between two uses. 0, and what is not settled
  // yet: they stay.
  Bytes away = 0;
  bool operator==(const Switches&) const = default;
};
inline constexpr Bytes kHalfOfHost = -1;  // as `away`: of what is free when a plan is made
inline Switches only_unlimited() { return {.recompute = false, .split = 1}; }

struct PoolEntry {
  int64_t split = 1;  // parts in all
  int64_t bands = 0;  // of each sample; 0: parts are whole samples
  Drops drops;        // of the loop's body when split
  Bytes arena = 0;    // bytes of the reservation, variables included
  double ms = 0;      // predicted on this machine
  Recomputed recomputed;
  std::vector<Stay> stays;  // of the loop's body when split
  Bytes away = 0;           // of host memory, for them
  double waits_ms = 0;      // of a trip, for their copies
};

// What all entries of one split share.
struct PoolSplit {
  int64_t split = 1;
  KernelBill bill;
  Bytes floor = 0;  // no plan of this split has a smaller arena
};

struct Pool {
  std::vector<PoolEntry> entries;  // the first is unlimited: no split (unless asked for), no drops
  std::vector<PoolSplit> splits;
  std::string refusal;       // why the batch cannot be split; empty: it can
  std::string band_refusal;  // why its images cannot be worked off in bands; empty: they can
  const PoolSplit& of(const PoolEntry& entry) const;
};

// Remembers what searches found, since the same micro-batch turns up in many pools.
class SearchMemo {
 public:
  // `threads`: that a search may use; what it finds is the same.
  explicit SearchMemo(size_t threads = 1) : threads_(threads) {}
  size_t threads() const { return threads_; }
  void forget();
  const std::vector<Candidate>& search(const Problem& problem, bool recompute);
  // Where the problem has copies: further ones, in which values leave.
  const std::vector<Candidate>& search_away(const Problem& problem, bool recompute);
  // Both on a thread of their own, to recompute; search() and search_away() will ask for them.
  void search_ahead(Problem problem, Problem leaving);
  Bytes bound(const Problem& problem);  // lower_bound

 private:
  struct Found {
    std::vector<Candidate> stay, away;
  };
  struct Begun {
    std::string away;  // key of what leaves; empty: nothing may
    std::future<Found> found;
  };
  size_t threads_;
  std::map<std::string, Begun> begun_;
  std::map<std::string, std::vector<Candidate>> found_;
  std::map<std::string, Bytes> bounds_;
};

// For questions about many batches.
struct QuickLook {
  std::vector<int64_t> only;  // splits (empty: all that divide the batch and serve)
  std::optional<Bytes> most;  // what cannot be smaller is not searched
};

// Begins the long search of a step, or of a split one's body, on a thread of its own: make_pool
// will ask for it. Worth it where no call that is timed later changes the facts
// (KernelBook::timed).
void search_ahead(const Graph& graph, KernelBook& book, SearchMemo& memo, const Switches& switches);

// `whole` is a traced step behind its passes. Throws UserError when a split is asked for that
// cannot be.
Pool make_pool(const Graph& whole, KernelBook& book, SearchMemo& memo, const VariableLayout& layout,
               const Switches& switches, const QuickLook& quick = {});

// The entry's graph, facts and validated plan; kernels are left out.
Prepared build(const Graph& whole, const PoolEntry& entry, KernelBook& book,
               const VariableLayout& layout);

}  // namespace pl

// SessionPlanner: pools of all signatures of a run, joined into points of one arena. Part of
// plan_session.
#pragma once

#include <optional>
#include <vector>

#include "train/footprint.h"
#include "train/session.h"

namespace pl {

class SessionPlanner {
 public:
  // `apart`: variables have a reservation of their own.
  SessionPlanner(Backend& backend, const VariableLayout& layout, const std::vector<Graph>& graphs,
                 Bytes source_bytes, size_t fused_nodes, const PlanOptions& options, bool apart,
                 PlanMemory& memory);

  // `within`: a quick look, for what fits so many bytes.
  // `leaves`: values may leave for the host.
  void make_pools(const Switches& switches, std::optional<Bytes> within, bool leaves = false);
  // About all that make_pools(switches, {}, true) will ask, before it begins.
  void ask_ahead(const Switches& switches) const;
  // Begins its long searches, as far as every time is known.
  void search_ahead(const Switches& switches) const;
  const std::vector<Pool>& pools() const { return pools_; }

  SessionPoint unlimited() const;
  // For every arena that an entry has: each signature's fastest entry within it.
  std::vector<SessionPoint> points() const;
  // No more of it in host memory than the budget asks for.
  void shrink_host(SessionPoint& point, Bytes budget) const;
  // No plan needs less: for each signature the best of its splits.
  Bytes floor() const;

 private:
  struct Splits;
  Splits splits_of(const Switches& switches, bool all) const;
  void begin_search(const Graph& graph, const Switches& switches) const;
  void find_host_parts(Bytes most);
  std::optional<SessionPoint> point_within(Bytes arena) const;
  void fill(SessionPoint& point) const;
  // `launches`: of kernels in a step, where steps are recorded. `host`: of the arena, on the host.
  Footprint footprint_of(const KernelBill& bill, Bytes arena, size_t launches, Bytes host = 0,
                         Bytes away = 0) const;
  DeviceBill on_device(const KernelBill& bill, Bytes arena, size_t launches, Bytes host,
                       Bytes away) const;

  Backend& backend_;
  const VariableLayout& layout_;
  const std::vector<Graph>& graphs_;
  Bytes source_bytes_;
  size_t fused_nodes_;
  Bytes host_;    // the most of its memory, on a device
  Bytes pinned_;  // of variables that stay there
  bool apart_;
  PlanMemory& memory_;
  bool by_page_;
  std::vector<Pool> pools_;
  std::vector<Bytes> host_parts_;  // ends of the layout that are optimiser state alone, ascending
};

std::vector<const Graph*> addresses(const std::vector<Graph>& graphs);

// Process bytes descending, times strictly ascending: what is slower and no smaller goes.
std::vector<SessionPoint> frontier_of(std::vector<SessionPoint> points);

}  // namespace pl

// Helpers for passes that edit a graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace pl {

// For each value the nodes that read it, in base order, once per node.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

bool is_kept(const Graph& graph, ValueId id);  // alive at the end

// Removes the nodes marked in `dropped` and all values that nothing refers to any more, and puts
// the remaining nodes in `order` (ids before the call; empty: as they are). Renumbers everything.
void rebuild(Graph& graph, const std::vector<bool>& dropped, const std::vector<NodeId>& order = {});

// Makes every reader of `from` (and the keep list) read `to` instead.
void replace_uses(Graph& graph, ValueId from, ValueId to);

}  // namespace pl

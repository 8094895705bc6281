// Checkpointing by hand: what a scope computes on the way is not held for the backward part, but
// computed again from what the scope reads; what it hands on is held or not as the planner likes.
// A scope is a part of the layer path, "remat:NAME": so it goes wherever a path goes, through
// passes and splits, and a plan obeys it at every budget.
#pragma once

#include <string>
#include <vector>

#include "plan/graph_problem.h"

namespace pl {

// The path up to its first part that names a scope; empty: none.
std::string remat_scope(const std::string& path);

// The path without scopes, for people.
std::string without_scopes(const std::string& path);

// Puts all that the named layers record into scopes, gradients included. A name is a layer's path
// or its first parts ("block_3" has all of "block_3/attn/qkv"). `*` stands for letters and digits,
// and each text it stands for is a scope of its own ("block_*"); `**` stands for any text
// ("conv2_block1_**" is one scope). Answers the names that match nothing.
std::vector<std::string> mark_remat(Graph& graph, const std::vector<std::string>& names);

// Sets Problem::Value::release of what scopes compute on the way.
void release_values(const Graph& graph, GraphProblem& made);

}  // namespace pl

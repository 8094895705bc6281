// The cost table of this machine, as the command line keeps it.
#pragma once

#include <optional>

#include "execute/cost_table.h"
#include "train/loop.h"

namespace pl {

// The table in the cache folder. On first use on this machine a process of its own measures the
// rates, so that this one's peak stays what was planned; it takes half of `budget` and of the
// system's room at most. Whatever fails leaves nominal rates.
CostTable load_costs(const Backend& backend, std::optional<Bytes> budget);

// Keeps the kernel times of a training run for the next plan, if there is news in them.
void learn_costs(const Backend& backend, const Session& session, const LoopResult& result);

}  // namespace pl

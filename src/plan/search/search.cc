// search(): all plans worth having.
#include "plan/search/flat.h"

namespace pl {

std::vector<Candidate> search(const Problem& problem, const SearchOptions&) {
  const auto steps = *lower(problem, {});
  Layout layout = lay_out(problem, steps);
  const Evaluation evaluation = evaluate(problem, steps);
  return {{.bytes = assign_addresses(layout.blocks, static_cast<int>(steps.size())),
           .peak = evaluation.peak,
           .ms = evaluation.ms}};
}

}  // namespace pl

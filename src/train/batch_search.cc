#include "train/batch_search.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "train/session.h"

namespace pl {

// Bytes grow nearly linearly with the batch, so the bracket is narrowed by interpolation and needs
// few plans. Of the splits only a few are looked at. A batch with many divisors may fit where a
// smaller one without them does not: the answer is a batch that fits, not a proof that none above
// it does.
BatchFit largest_batch(const PlanFor& plan_for, const PlanOptions& options, Bytes budget,
                       int64_t most) {
  BatchFit best;
  PlanOptions quick = options;
  quick.budget = budget;
  quick.all = false;
  quick.finest = true;
  // A split that was asked for must divide the batch: then batches are counted in its parts.
  const int64_t unit = options.switches.split.value_or(1);
  if (most < unit) return best;
  auto tries = [&](int64_t units) -> std::optional<Bytes> {
    const int64_t batch = units * unit;
    try {
      const SessionPlan plan = plan_for(batch, quick);
      if (plan.process() <= budget && batch > best.batch) best = {batch, plan.process(), plan.ms};
      return plan.frontier.back().process();
    } catch (const UserError&) {
      return std::nullopt;  // a shape too large to exist
    }
  };
  int64_t low = 1, high = most / unit + 1;  // in units; low fits; high does not
  auto low_bytes = tries(1);
  if (!low_bytes || *low_bytes > budget) return best;
  double slope = 0;
  for (int round = 0; round < 64 && high - low > 1; ++round) {
    int64_t guess =
        slope > 0 ? low + static_cast<int64_t>(static_cast<double>(budget - *low_bytes) / slope)
                  : low * 2;
    if (round % 4 == 3) guess = low + (high - low) / 2;  // in case the curve is not a line
    guess = std::clamp(guess, low + 1, high - 1);
    const auto bytes = tries(guess);
    if (bytes) slope = static_cast<double>(*bytes - *low_bytes) / static_cast<double>(guess - low);
    if (bytes && *bytes <= budget) {
      low = guess;
      low_bytes = bytes;
      // Next time look just above: most often that is the end.
      if (slope > 0 && static_cast<double>(budget - *bytes) < slope) {
        const auto above = high - low > 1 ? tries(low + 1) : std::nullopt;
        if (!above || *above > budget) break;
        low += 1;
        low_bytes = above;
      }
    } else {
      high = guess;
    }
  }
  return best;
}

BatchFit look_closely(const BatchFit& fit, const PlanFor& plan_for, const PlanOptions& options,
                      Bytes budget) {
  if (fit.batch == 0) return fit;
  PlanOptions each = options;
  each.budget = budget;
  each.all = false;
  const SessionPlan plan = plan_for(fit.batch, each);
  return {fit.batch, plan.process(), plan.ms};
}

}  // namespace pl

#include "train/log_means.h"

#include <algorithm>

#include "base/error.h"
#include "train/batch_facts.h"

namespace pl {

LogMeans::LogMeans(const Session& session, StepKind kind)
    : logs_((kind == StepKind::train ? session.plan().step : session.plan().test).logs) {
  for (size_t s = 0; s < session.plan().signatures.size(); ++s) {
    if (session.plan().signatures[s].kind != kind) continue;
    const Graph& graph = session.plan().prepared[s].graph;
    for (const LogTerm& term : logs_) {
      size_t numbers = 1;  // samples
      for (size_t k = 0; k < term.count; ++k)
        numbers +=
            static_cast<size_t>(graph.values[index(graph.keep[term.first + k])].meta.elements());
      states_.emplace_back(numbers, 0.0);
    }
    break;
  }
}

void LogMeans::reset() {
  samples_ = loss_ = 0;
  for (std::vector<double>& state : states_) std::fill(state.begin(), state.end(), 0.0);
}

void LogMeans::add(const Session& session, size_t signature, int64_t rows) {
  const auto count = static_cast<double>(rows);
  loss_ += kept_scalar(session, signature, 0) * count;
  samples_ += count;
  for (size_t t = 0; t < logs_.size(); ++t) {
    const LogTerm& term = logs_[t];
    double* to = states_[t].data();
    *to++ += count;
    // A loss is a mean over the step's samples, the others are sums over them.
    const double factor = term.result ? 1 : count;
    for (size_t k = 0; k < term.count; ++k)
      for (double number : KeptNumbers(session, signature, term.first + k))
        *to++ += number * factor;
  }
}

void LogMeans::write_sums(std::vector<double>& sums) const {
  sums.clear();
  sums.push_back(samples_);
  sums.push_back(loss_);
  for (const std::vector<double>& state : states_)
    sums.insert(sums.end(), state.begin(), state.end());
}

void LogMeans::read_sums(const std::vector<double>& sums) {
  size_t wanted = 2;
  for (const std::vector<double>& state : states_) wanted += state.size();
  if (sums.size() != wanted)
    throw DataError("[resume] expected the sums of the loss and " + std::to_string(logs_.size()) +
                    " metrics, " + std::to_string(wanted) + " numbers, received " +
                    std::to_string(sums.size()) + "; a run goes on with the metrics it began with");
  samples_ = sums[0];
  loss_ = sums[1];
  auto next = sums.begin() + 2;
  for (std::vector<double>& state : states_)
    for (double& number : state) number = *next++;
}

double LogMeans::mean_loss() const {
  return tracks_loss() ? logs_[0].result(states_[0]) : loss_ / samples_;
}

void LogMeans::write_terms(std::vector<double>& out) const {
  const size_t first = tracks_loss() ? 1 : 0;
  for (size_t t = first; t < logs_.size(); ++t)
    out[t - first] = logs_[t].result ? logs_[t].result(states_[t]) : states_[t][1] / states_[t][0];
}

}  // namespace pl

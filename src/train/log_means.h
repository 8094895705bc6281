// Totals over the steps of an epoch or an evaluation, and the figures that they make.
#pragma once

#include <vector>

#include "train/session.h"

namespace pl {

// The loss weighted by samples, and the sums of the log's other terms.
class LogMeans {
 public:
  LogMeans(const Session& session, StepKind kind);

  void reset();
  void add(const Session& session, size_t signature, int64_t rows);
  // Between two runs, as LoopPosition::sums. Throws DataError where there are others.
  void write_sums(std::vector<double>& sums) const;
  void read_sums(const std::vector<double>& sums);

  // Of a loss that a step tracks itself (metrics::Mean), what that makes of it.
  double mean_loss() const;
  size_t terms() const { return logs_.size() - (tracks_loss() ? 1 : 0); }
  void write_terms(std::vector<double>& out) const;

 private:
  bool tracks_loss() const { return !logs_.empty() && logs_[0].name == "loss"; }

  const std::vector<LogTerm>& logs_;
  double samples_ = 0, loss_ = 0;
  std::vector<std::vector<double>> states_;  // as the log's terms
};

}  // namespace pl

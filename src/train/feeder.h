// Batches of a source on their way to a session's inputs.
#pragma once

#include <exception>
#include <span>
#include <vector>

#include "data/shuffle.h"
#include "data/source.h"
#include "train/session.h"

namespace pl {

// Reads samples [begin, begin + rows) of the (shuffled) epoch into the signature's inputs. The
// source has the time of the step to find the batch behind them.
class Feeder {
 public:
  Feeder(int64_t batch, const Source& source);

  void feed(Session& session, size_t signature, Source& source, const Permutation* order,
            int64_t begin, int64_t rows);
  // The same for the step that comes next, while one runs. What goes wrong is told when it is the
  // step's turn.
  void feed_ahead(Session& session, size_t signature, Source& source, const Permutation* order,
                  int64_t begin, int64_t rows);
  // Which samples were read last.
  std::span<const int64_t> samples(int64_t rows) const {
    return std::span(indices_).first(static_cast<size_t>(rows));
  }

 private:
  struct Batch {
    int64_t begin = -1, rows = 0;
    bool operator==(const Batch&) const = default;
  };
  void read(Session& session, size_t signature, Source& source, const Permutation* order,
            int64_t begin, int64_t rows);

  std::vector<int64_t> indices_, next_;
  std::vector<void*> places_;
  Batch listed_;  // in next_: what the source was told to expect
  Batch ahead_;   // of the pass that is under way, already with the session
  std::exception_ptr failure_;
};

}  // namespace pl

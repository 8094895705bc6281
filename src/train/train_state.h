// What a checkpoint holds besides tensors: where the run stands, how it was set up, and what its
// callbacks remember. As JSON in the manifest; reading treats it as hostile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace pl {

// How a run was set up, as far as its numbers depend on it.
struct RunIdentity {
  std::string model, optimizer, dtype, data;
  int64_t batch = 0, train_samples = 0;
  int threads = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  // Hashes of the training step's numerics keys: with the backend's (its libraries), and without.
  // Runs of before there was the latter have it as `numerics`.
  std::string numerics, kernels = {};
};

// Where a run stands between two steps: with the variables, all that going on needs to give the
// same shuffles, masks, updates and figures as if it had never stopped.
struct LoopPosition {
  int64_t epoch = 1, epoch_step = 0;  // the epoch under way, from 1, and its steps done
  int64_t steps = 0;                  // in all epochs
  std::vector<double> sums = {};      // over the epoch so far: samples, loss, metrics
  double loss_first = 0, loss_last = 0;
};

struct TrainState {
  RunIdentity identity;
  LoopPosition position;
  int64_t steps_before = 0, epochs_before = 0;  // of runs before this one with the same optimiser
  double learning_rate = 0;                     // as callbacks have left it
  bool stop_training = false;                   // a callback has decided so
  std::optional<double> score = {};     // of the last epoch that ended here: lower is better
  Json callbacks = Json::array();       // {"name":..., "state":...}
  std::vector<std::string> files = {};  // not saved: whose lengths the callbacks' states tell
};

Json to_json(const TrainState& state);
TrainState train_state_from(const Json& json, const std::string& what);  // throws DataError

// Throws DataError when going on from `saved` with `now` would be another run: other data, batch,
// seed. Answers a warning, or "", when the numbers may differ in their last bits.
std::string check_identity(const RunIdentity& saved, const RunIdentity& now);

// Doubles that may be infinite or NaN, which JSON numbers are not.
Json real_json(double value);
double real_from(const Json& json, const std::string& what);

}  // namespace pl

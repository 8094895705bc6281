#include "train/loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/heap_count.h"
#include "data/shuffle.h"

namespace pl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmSteps = 2;  // libraries may still settle in these
constexpr size_t kTimesKept = 4096;
constexpr size_t kTimedSteps = 5;  // kernel by kernel, behind the warm ones

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int64_t whole_steps(int64_t samples, int64_t batch) { return (samples + batch - 1) / batch; }

size_t find_signature(const Session& session, StepKind kind, int64_t batch) {
  const auto& list = session.plan().signatures;
  const auto at = std::find(list.begin(), list.end(), Signature{kind, batch});
  if (at == list.end())
    throw UserError(
        "[fit] expected a batch size that was planned before the first step, received " +
        std::to_string(batch));
  return static_cast<size_t>(at - list.begin());
}

// Sample-weighted means of loss and metrics.
struct Means {
  double samples = 0, loss = 0;
  std::vector<double> metrics;

  void add(const Session& session, size_t signature, int64_t rows) {
    loss += kept_scalar(session, signature, 0) * static_cast<double>(rows);
    for (size_t m = 0; m < metrics.size(); ++m)
      metrics[m] += kept_scalar(session, signature, m + 1);
    samples += static_cast<double>(rows);
  }
  void clear() {
    samples = loss = 0;
    std::fill(metrics.begin(), metrics.end(), 0.0);
  }
  // Between two runs, as LoopPosition::sums.
  void write_sums(std::vector<double>& sums) const {
    sums.resize(2 + metrics.size());
    sums[0] = samples;
    sums[1] = loss;
    std::copy(metrics.begin(), metrics.end(), sums.begin() + 2);
  }
  void read_sums(const std::vector<double>& sums) {
    if (sums.size() != 2 + metrics.size())
      throw DataError("[resume] expected the sums of loss and " + std::to_string(metrics.size()) +
                      " metrics, received " + std::to_string(sums.size()) +
                      " numbers; a run goes on with the metrics it began with");
    samples = sums[0];
    loss = sums[1];
    std::copy(sums.begin() + 2, sums.end(), metrics.begin());
  }
  double mean_loss() const { return loss / samples; }
  void write_metrics(std::vector<double>& out) const {
    for (size_t m = 0; m < metrics.size(); ++m) out[m] = metrics[m] / samples;
  }
};

// Reads samples [begin, begin + rows) of the (shuffled) epoch into the signature's inputs.
class Feeder {
 public:
  explicit Feeder(int64_t batch) { indices_.resize(static_cast<size_t>(batch)); }

  void feed(Session& session, size_t signature, Source& source, const Permutation* order,
            int64_t begin, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i)
      indices_[static_cast<size_t>(i)] = order ? (*order)(begin + i) : begin + i;
    const bool with_y = session.plan().signatures[signature].kind != StepKind::predict;
    const std::array<void*, 2> places{session.input(signature, 0),
                                      with_y ? session.input(signature, 1) : nullptr};
    source.read({indices_.data(), static_cast<size_t>(rows)},
                std::span(places).first(source.fields().size()));
  }

 private:
  std::vector<int64_t> indices_;
};

// Runs a step that writes no variable on every batch of the source, in order; then body(signature,
// rows). Stops early when an observer wants to leave.
template <class Body>
void for_each_batch(Session& session, StepKind kind, Source& source, int64_t batch,
                    TrainObserver* observer, const Body& body) {
  Feeder feeder(batch);
  for (int64_t begin = 0; begin < source.size(); begin += batch) {
    if (observer && observer->leave()) return;
    if (observer) observer->on_test_step_begin(begin / batch);
    const int64_t rows = std::min(batch, source.size() - begin);
    const size_t signature = find_signature(session, kind, rows);
    feeder.feed(session, signature, source, nullptr, begin, rows);
    StepParams params;
    params.rows = rows;
    session.run(signature, params);
    body(signature, rows);
  }
}

// Times the kernels of a few steps of the first signature.
class KernelTimer {
 public:
  KernelTimer(Session& session, bool wanted) {
    if (wanted) times_.assign(kTimedSteps, StepTimes(session.executor(0).timed_steps()));
  }
  // Where the next step's times go; null: it is not timed.
  StepTimes* next(size_t signature, int64_t steps_before) {
    if (signature != 0 || steps_before < kWarmSteps || done_ == times_.size()) return nullptr;
    return &times_[done_++];
  }
  // Of each step the second fastest: a median would follow other work on the machine.
  std::vector<double> typical_ms() const {
    std::vector<double> ms;
    if (done_ < kTimedSteps) return ms;
    for (size_t s = 0; s < times_[0].size(); ++s) {
      std::array<int64_t, kTimedSteps> runs{};
      for (size_t r = 0; r < kTimedSteps; ++r) runs[r] = times_[r][s];
      std::nth_element(runs.begin(), runs.begin() + 1, runs.end());
      ms.push_back(static_cast<double>(runs[1]) / 1e6);
    }
    return ms;
  }

 private:
  std::vector<StepTimes> times_;
  size_t done_ = 0;
};

class Trainer {
 public:
  Trainer(Session& session, const LoopOptions& options, Source& train, Source* test,
          TrainObserver& observer)
      : session_(session),
        options_(options),
        train_(train),
        test_(test),
        observer_(observer),
        feeder_(options.batch),
        timer_(session, options.time_kernels) {
    const LoopPosition& start = options.start;
    means_.metrics.resize(session.plan().metrics);
    if (!start.sums.empty()) means_.read_sums(start.sums);
    means_.write_sums(position_.sums);
    result_.steps = start.steps;
    result_.loss_first = start.loss_first;
    result_.loss_last = start.loss_last;
    event_.mean_metrics.resize(means_.metrics.size());
    times_.reserve(kTimesKept);
  }

  LoopResult run() {
    observer_.on_train_begin();
    // In the middle of an epoch its end may still be to come, evaluation included.
    done_ = observer_.stop() || (reached_steps() && options_.start.epoch_step == 0);
    int64_t first = options_.start.epoch_step;
    for (int64_t epoch = options_.start.epoch; epoch <= options_.epochs && !done_; ++epoch) {
      run_epoch(epoch, first);
      first = 0;
    }
    if (!result_.left) observer_.on_train_end();
    finish();
    return std::move(result_);
  }

 private:
  bool reached_steps() const { return options_.steps && result_.steps >= *options_.steps; }

  // `done` steps of it were made before.
  void run_epoch(int64_t epoch, int64_t done) {
    const auto start = Clock::now();
    const Permutation order(train_.size(), options_.seed,
                            static_cast<uint64_t>(options_.epochs_before + epoch));
    const int64_t pass = whole_steps(train_.size(), options_.batch);
    const int64_t whole = options_.steps_per_epoch.value_or(pass);
    if (done > whole)
      throw DataError("[resume] expected at most " + std::to_string(whole) +
                      " steps of an epoch, received " + std::to_string(done));
    const int64_t left = options_.steps ? *options_.steps - result_.steps : whole;
    const int64_t steps = std::min(whole, done + left);
    if (done == 0) means_.clear();
    observer_.on_epoch_begin(epoch, options_.epochs, steps, done);
    event_.epoch = epoch;
    event_.epoch_step = position_.epoch_step = done;
    event_.epoch_steps = steps;
    for (int64_t s = done; s < steps && !done_; ++s) {
      const int64_t begin = s % pass * options_.batch;
      event_.epoch_step = s + 1;
      observer_.on_step_begin(s);
      run_step(options_.shuffle ? &order : nullptr, begin,
               std::min(options_.batch, train_.size() - begin));
      if (result_.finite) tell_position(epoch, s + 1);
      done_ = !result_.finite || reached_steps() || observer_.stop() || leaves();
    }
    if (!result_.left) end_epoch(epoch, start, event_.epoch_step == whole);
  }

  // `whole`: it was not cut short.
  void end_epoch(int64_t epoch, Clock::time_point start, bool whole) {
    EpochEvent event{.epoch = epoch, .loss = means_.mean_loss()};
    event.metrics.resize(means_.metrics.size());
    means_.write_metrics(event.metrics);
    if (test_ && result_.finite) {
      const Evaluated evaluation = evaluate(session_, *test_, options_.batch, &observer_);
      if (leaves()) return;
      event.val_loss = evaluation.loss;
      event.val_metrics = evaluation.metrics;
    }
    event.seconds = ms_since(start) / 1e3;
    observer_.on_epoch(event);
    if (whole && result_.finite) {
      means_.clear();
      tell_position(epoch + 1, 0);
    } else if (result_.finite) {
      tell_position(epoch, position_.epoch_step);
    }
    result_.last_epoch = std::move(event);
    if (observer_.stop() || leaves()) done_ = true;
  }

  bool leaves() {
    if (observer_.leave()) result_.left = done_ = true;
    return result_.left;
  }

  void tell_position(int64_t epoch, int64_t epoch_step) {
    position_.epoch = epoch;
    position_.epoch_step = epoch_step;
    position_.steps = result_.steps;
    means_.write_sums(position_.sums);
    position_.loss_first = result_.loss_first;
    position_.loss_last = result_.loss_last;
    observer_.on_boundary(position_);
  }

  void run_step(const Permutation* order, int64_t begin, int64_t rows) {
    const size_t signature = find_signature(session_, StepKind::train, rows);
    const bool busy = observer_.busy();
    const HeapCounts before = heap_counts();
    const auto start = Clock::now();
    if (!options_.resident_batch || here_ == 0)
      feeder_.feed(session_, signature, train_, order, begin, rows);
    StepParams params;
    params.step = options_.steps_before + result_.steps + 1;
    params.seed = options_.seed;
    params.learning_rate =
        options_.optimizer ? options_.optimizer->learning_rate : options_.learning_rate;
    params.rows = rows;
    session_.run(signature, params, timer_.next(signature, here_));
    event_.ms = ms_since(start);
    const HeapCounts after = heap_counts();
    event_.step = ++result_.steps;
    ++here_;
    event_.loss = kept_scalar(session_, signature, 0);
    means_.add(session_, signature, rows);
    event_.mean_loss = means_.mean_loss();
    means_.write_metrics(event_.mean_metrics);
    account(before, after, rows, busy);
    observer_.on_step(event_);
  }

  void account(const HeapCounts& before, const HeapCounts& after, int64_t rows, bool busy) {
    if (result_.steps == 1) result_.loss_first = event_.loss;
    result_.loss_last = event_.loss;
    result_.finite = std::isfinite(event_.loss);
    samples_ += rows;
    train_ms_ += event_.ms;
    if (times_.size() < kTimesKept) {
      times_.push_back(event_.ms);
    } else {
      times_[static_cast<size_t>(here_) % kTimesKept] = event_.ms;
    }
    if (here_ <= kWarmSteps || busy) return;
    ++steady_;
    heap_.ours += after.ours - before.ours;
    heap_.library += after.library - before.library;
  }

  void finish() {
    result_.kernel_ms = timer_.typical_ms();
    if (!times_.empty()) {
      result_.step_ms_min = *std::min_element(times_.begin(), times_.end());
      auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
      std::nth_element(times_.begin(), middle, times_.end());
      result_.step_ms_median = *middle;
    }
    if (train_ms_ > 0) result_.samples_per_s = static_cast<double>(samples_) / train_ms_ * 1e3;
    if (steady_ > 0) {
      result_.heap_allocations_per_step =
          static_cast<double>(heap_.ours) / static_cast<double>(steady_);
      result_.library_allocations_per_step =
          static_cast<double>(heap_.library) / static_cast<double>(steady_);
    }
  }

  Session& session_;
  const LoopOptions& options_;
  Source& train_;
  Source* test_;
  TrainObserver& observer_;
  Feeder feeder_;
  KernelTimer timer_;
  Means means_;
  StepEvent event_;
  LoopPosition position_;
  LoopResult result_;
  std::vector<double> times_;
  int64_t here_ = 0;  // steps of this process
  int64_t samples_ = 0, steady_ = 0;
  double train_ms_ = 0;
  HeapCounts heap_;
  bool done_ = false;
};

}  // namespace

std::vector<Signature> signatures_for(const LoopOptions& options, int64_t train_samples,
                                      int64_t test_samples) {
  std::vector<Signature> list = signatures_for(StepKind::train, options.batch, train_samples);
  for (const Signature& signature : signatures_for(StepKind::evaluate, options.batch, test_samples))
    list.push_back(signature);
  return list;
}

std::vector<Signature> signatures_for(StepKind kind, int64_t batch, int64_t samples) {
  std::vector<Signature> list;
  if (samples >= batch) list.push_back({kind, batch});
  if (samples % batch != 0) list.push_back({kind, samples % batch});
  return list;
}

LoopResult run_training(Session& session, const LoopOptions& options, Source& train, Source* test,
                        TrainObserver& observer) {
  return Trainer(session, options, train, test, observer).run();
}

Evaluated evaluate(Session& session, Source& source, int64_t batch, TrainObserver* observer) {
  Means means;
  means.metrics.resize(session.plan().metrics);
  Evaluated result;
  result.metrics.resize(means.metrics.size());
  if (observer) observer->on_test_begin();
  int64_t step = 0;
  for_each_batch(session, StepKind::evaluate, source, batch, observer,
                 [&](size_t signature, int64_t rows) {
                   means.add(session, signature, rows);
                   result.loss = means.mean_loss();
                   means.write_metrics(result.metrics);
                   if (observer) observer->on_test_step(step, result);
                   ++step;
                 });
  if (observer && !observer->leave()) observer->on_test_end(result);
  return result;
}

void predict(Session& session, Source& source, int64_t batch, void* out) {
  char* to = static_cast<char*>(out);
  for_each_batch(session, StepKind::predict, source, batch, nullptr,
                 [&](size_t signature, int64_t) {
                   const Graph& graph = session.plan().prepared[signature].graph;
                   const Bytes bytes = graph.values[index(graph.keep[0])].meta.bytes();
                   std::memcpy(to, session.kept(signature, 0), static_cast<size_t>(bytes));
                   to += bytes;
                 });
}

Bytes loop_bytes(const LoopOptions& options) {
  return options.batch * static_cast<Bytes>(sizeof(int64_t)) * 2 +
         static_cast<Bytes>(kTimesKept * sizeof(double));
}

}  // namespace pl

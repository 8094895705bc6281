#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/heap_count.h"
#include "data/shuffle.h"
#include "train/diagnose.h"
#include "train/feeder.h"
#include "train/kernel_timer.h"
#include "train/log_means.h"

namespace pl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTimesKept = 4096;
// With loss scaling a step may be left out; so many in a row are no overflow that a smaller scale
// mends.
constexpr int kMostLost = 10;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int64_t whole_steps(int64_t samples, int64_t batch) { return (samples + batch - 1) / batch; }

int64_t validation_batch(const LoopOptions& options) {
  return options.validation_batch > 0 ? options.validation_batch : options.batch;
}

size_t find_signature(const Session& session, StepKind kind, int64_t batch,
                      bool accumulate = false) {
  const auto& list = session.plan().signatures;
  const auto at = std::find(list.begin(), list.end(), Signature{kind, batch, accumulate});
  if (at == list.end())
    throw UserError(
        "[fit] expected a batch size that was planned before the first step, received " +
        std::to_string(batch));
  return static_cast<size_t>(at - list.begin());
}

// Runs a step that trains nothing on every batch of the source, in order; then body(signature,
// rows). Stops early when an observer wants to leave.
template <class Body>
void for_each_batch(Session& session, StepKind kind, Source& source, int64_t batch, int64_t steps,
                    TrainObserver* observer, const Body& body) {
  Feeder feeder(batch, source);
  source.begin_epoch(0);
  const int64_t samples = samples_in(source.size(), batch, steps);
  for (int64_t begin = 0; begin < samples; begin += batch) {
    if (observer && observer->leave()) return;
    if (observer && kind == StepKind::evaluate) observer->on_test_step_begin(begin / batch);
    if (observer && kind == StepKind::predict) observer->on_predict_step_begin(begin / batch);
    const int64_t rows = std::min(batch, samples - begin);
    const size_t signature = find_signature(session, kind, rows);
    feeder.feed(session, signature, source, nullptr, begin, rows);
    StepParams params;
    params.rows = rows;
    const int64_t next = begin + batch, more = std::min(batch, samples - next);
    Session::Beside beside;
    if (more > 0 && session.reads_ahead())
      beside = [&] {
        feeder.feed_ahead(session, find_signature(session, kind, more), source, nullptr, next,
                          more);
      };
    try {
      session.run(signature, params, nullptr, beside);
    } catch (const BackendError& error) {
      throw BackendError((kind == StepKind::evaluate ? "[evaluate] batch " : "[predict] batch ") +
                         std::to_string(begin / batch + 1) + ": " + error.what());
    }
    body(signature, rows);
  }
}

class Trainer {
 public:
  Trainer(Session& session, const LoopOptions& options, Source& train, Source* test,
          TrainObserver& observer)
      : session_(session),
        options_(options),
        train_(train),
        test_(test),
        observer_(observer),
        feeder_(options.batch, train),
        timer_(session, options.time_kernels && session.variables().on_host()),
        means_(session, StepKind::train) {
    const LoopPosition& start = options.start;
    session.count_iterations();
    if (!start.sums.empty()) means_.read_sums(start.sums);
    means_.write_sums(position_.sums);
    result_.steps = start.steps;
    result_.loss_first = start.loss_first;
    result_.loss_last = start.loss_last;
    event_.mean_metrics.resize(means_.terms());
    times_.reserve(kTimesKept);
  }

  LoopResult run() {
    observer_.on_train_begin();
    // In the middle of an epoch its end may still be to come, evaluation included.
    done_ = observer_.stop() || (reached_steps() && options_.start.epoch_step == 0);
    int64_t first = options_.start.epoch_step;
    const int64_t begin = std::max(options_.start.epoch, options_.initial_epoch + 1);
    for (int64_t epoch = begin; epoch <= options_.epochs && !done_; ++epoch) {
      run_epoch(epoch, first);
      first = 0;
    }
    if (!result_.left && here_ > 0 && result_.finite && !std::isfinite(event_.loss)) diverge();
    if (!result_.left) observer_.on_train_end();
    finish();
    return std::move(result_);
  }

 private:
  bool reached_steps() const { return options_.steps && result_.steps >= *options_.steps; }

  // `done` steps of it were made before.
  void run_epoch(int64_t epoch, int64_t done) {
    const auto start = Clock::now();
    const int64_t pass_steps = whole_steps(train_.size(), options_.batch);
    const int64_t whole = options_.steps_per_epoch.value_or(pass_steps);
    if (done > whole)
      throw DataError("[resume] expected at most " + std::to_string(whole) +
                      " steps of an epoch, received " + std::to_string(done));
    const int64_t left = options_.steps ? *options_.steps - result_.steps : whole;
    const int64_t steps = std::min(whole, done + left);
    if (done == 0) means_.reset();
    observer_.on_epoch_begin(epoch, options_.epochs, steps, done);
    event_.epoch = epoch;
    event_.epoch_step = position_.epoch_step = done;
    event_.epoch_steps = steps;
    for (int64_t s = done; s < steps && !done_; ++s) {
      const int64_t step = (epoch - 1) * whole + s;  // of all, were there one epoch
      const int64_t begin = step % pass_steps * options_.batch;
      begin_pass(options_.epochs_before + 1 + step / pass_steps);
      event_.epoch_step = s + 1;
      observer_.on_step_begin(s);
      const bool last = s + 1 == steps || (step + 1) % pass_steps == 0;
      run_step(options_.shuffle ? &*order_ : nullptr, begin,
               std::min(options_.batch, train_.size() - begin), !last);
      if (result_.finite) tell_position(epoch, s + 1);
      done_ = !result_.finite || reached_steps() || observer_.stop() || leaves();
    }
    if (!result_.left) end_epoch(epoch, start, event_.epoch_step == whole);
  }

  void begin_pass(int64_t pass) {
    if (order_ && pass == pass_) return;
    order_.emplace(train_.size(), options_.seed, static_cast<uint64_t>(pass));
    train_.begin_epoch(pass);
    pass_ = pass;
  }

  // `whole`: it was not cut short.
  void end_epoch(int64_t epoch, Clock::time_point start, bool whole) {
    EpochEvent event{.epoch = epoch, .loss = means_.mean_loss()};
    event.metrics.resize(means_.terms());
    means_.write_terms(event.metrics);
    if (test_ && result_.finite && epoch % options_.validation_freq == 0) {
      const Evaluated evaluation = evaluate(session_, *test_, validation_batch(options_),
                                            &observer_, options_.validation_steps);
      if (leaves()) return;
      event.val_loss = evaluation.loss;
      event.val_metrics = evaluation.metrics;
    }
    event.seconds = ms_since(start) / 1e3;
    observer_.on_epoch(event);
    if (whole && result_.finite) {
      means_.reset();
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

  // `more`: the pass goes on behind it.
  void run_step(const Permutation* order, int64_t begin, int64_t rows, bool more) {
    const int64_t done = options_.steps_before + result_.steps;
    const UpdateMoment moment = update_moment(session_, done);
    const size_t signature = find_signature(session_, StepKind::train, rows, moment.accumulate);
    const bool busy = observer_.busy();
    const HeapCounts before = heap_counts();
    const auto start = Clock::now();
    if (!options_.resident_batch || here_ == 0)
      feeder_.feed(session_, signature, train_, order, begin, rows);
    StepParams params;
    params.step = done + 1;
    params.seed = options_.seed;
    params.update = moment.update;
    params.learning_rate = moment.learning_rate;
    params.rows = rows;
    // With loss scaling the step itself leaves out an update that is not finite, and learns from
    // it.
    const bool scaled = session_.counted_iterations() != nullptr;
    StepTimes* times = timer_.next(signature, here_);
    const int64_t next = begin + options_.batch;
    const int64_t count = std::min(options_.batch, train_.size() - next);
    Session::Beside beside;  // allocates: not without need
    if (more && session_.reads_ahead())
      beside = [&] {
        feeder_.feed_ahead(session_, find_signature(session_, StepKind::train, count), train_,
                           order, next, count);
      };
    if (scaled)
      session_.run(signature, params, times, beside);
    else
      session_.run_if_finite(signature, params, times, beside);
    event_.ms = ms_since(start);
    const HeapCounts after = heap_counts();
    event_.step = ++result_.steps;
    ++here_;
    event_.loss = kept_scalar(session_, signature, 0);
    means_.add(session_, signature, rows);
    event_.mean_loss = means_.mean_loss();
    means_.write_terms(event_.mean_metrics);
    account(before, after, rows, busy);
    last_ = {signature, params, order, begin};
    lost_ = std::isfinite(event_.loss) ? 0 : lost_ + 1;
    if (lost_ == (scaled ? kMostLost : 1)) diverge();
    observer_.on_step(event_);
  }

  // The last step's loss is not finite, and that is where it ends.
  void diverge() {
    result_.finite = false;
    const auto& [signature, params, order, begin] = last_;
    if (!options_.resident_batch)
      feeder_.feed(session_, signature, train_, order, begin, params.rows);
    result_.cause = find_non_finite(session_, signature, params, feeder_.samples(params.rows));
  }

  void account(const HeapCounts& before, const HeapCounts& after, int64_t rows, bool busy) {
    if (result_.steps == 1) result_.loss_first = event_.loss;
    result_.loss_last = event_.loss;
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
  LogMeans means_;
  std::optional<Permutation> order_;  // of the pass over the data that is under way
  int64_t pass_ = 0;
  StepEvent event_;
  LoopPosition position_;
  LoopResult result_;
  struct {
    size_t signature = 0;
    StepParams params;
    const Permutation* order = nullptr;
    int64_t begin = 0;
  } last_;        // step
  int lost_ = 0;  // steps in a row, up to now, whose loss is not finite
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
  const size_t updates = list.size();
  for (size_t s = 0; s < updates && options.accumulate > 1; ++s)
    list.push_back({StepKind::train, list[s].batch, true});
  for (const Signature& signature : signatures_for(
           StepKind::evaluate, validation_batch(options),
           samples_in(test_samples, validation_batch(options), options.validation_steps)))
    list.push_back(signature);
  return list;
}

std::vector<Signature> signatures_for(StepKind kind, int64_t batch, int64_t samples) {
  std::vector<Signature> list;
  if (samples >= batch) list.push_back({kind, batch});
  if (samples % batch != 0) list.push_back({kind, samples % batch});
  return list;
}

int64_t samples_in(int64_t samples, int64_t batch, int64_t steps) {
  return steps > 0 && steps < whole_steps(samples, batch) ? steps * batch : samples;
}

LoopResult run_training(Session& session, const LoopOptions& options, Source& train, Source* test,
                        TrainObserver& observer) {
  return Trainer(session, options, train, test, observer).run();
}

Evaluated evaluate(Session& session, Source& source, int64_t batch, TrainObserver* observer,
                   int64_t steps) {
  LogMeans means(session, StepKind::evaluate);
  Evaluated result;
  result.metrics.resize(means.terms());
  if (observer) observer->on_test_begin();
  int64_t step = 0;
  for_each_batch(session, StepKind::evaluate, source, batch, steps, observer,
                 [&](size_t signature, int64_t rows) {
                   means.add(session, signature, rows);
                   result.loss = means.mean_loss();
                   means.write_terms(result.metrics);
                   if (observer) observer->on_test_step(step, result);
                   ++step;
                 });
  if (observer && !observer->leave()) observer->on_test_end(result);
  return result;
}

void predict(Session& session, Source& source, int64_t batch, const std::vector<void*>& out,
             TrainObserver* observer, int64_t steps) {
  std::vector<char*> to;
  for (void* place : out) to.push_back(static_cast<char*>(place));
  int64_t step = 0;
  if (observer) observer->on_predict_begin();
  for_each_batch(session, StepKind::predict, source, batch, steps, observer,
                 [&](size_t signature, int64_t) {
                   const Graph& graph = session.plan().prepared[signature].graph;
                   for (size_t k = 0; k < to.size(); ++k) {
                     const Bytes bytes = graph.values[index(graph.keep[k])].meta.bytes();
                     std::memcpy(to[k], session.kept(signature, k), static_cast<size_t>(bytes));
                     to[k] += bytes;
                   }
                   if (observer) observer->on_predict_step(step);
                   ++step;
                 });
  if (observer) observer->on_predict_end();
}

Bytes loop_bytes(const LoopOptions& options) {
  return std::max(options.batch, validation_batch(options)) * static_cast<Bytes>(sizeof(int64_t)) *
             4 +
         static_cast<Bytes>(kTimesKept * sizeof(double));
}

}  // namespace pl

#include "train/loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/heap_count.h"
#include "data/shuffle.h"
#include "train/batch_facts.h"
#include "train/diagnose.h"

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

// Totals over steps: the loss weighted by samples, and the sums of the log's other terms.
class Means {
 public:
  Means(const Session& session, StepKind kind)
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

  void reset() {
    samples = loss_ = 0;
    for (std::vector<double>& state : states_) std::fill(state.begin(), state.end(), 0.0);
  }
  void add(const Session& session, size_t signature, int64_t rows) {
    const auto count = static_cast<double>(rows);
    loss_ += kept_scalar(session, signature, 0) * count;
    samples += count;
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
  // Between two runs, as LoopPosition::sums.
  void write_sums(std::vector<double>& sums) const {
    sums.clear();
    sums.push_back(samples);
    sums.push_back(loss_);
    for (const std::vector<double>& state : states_)
      sums.insert(sums.end(), state.begin(), state.end());
  }
  void read_sums(const std::vector<double>& sums) {
    size_t wanted = 2;
    for (const std::vector<double>& state : states_) wanted += state.size();
    if (sums.size() != wanted)
      throw DataError("[resume] expected the sums of the loss and " + std::to_string(logs_.size()) +
                      " metrics, " + std::to_string(wanted) + " numbers, received " +
                      std::to_string(sums.size()) +
                      "; a run goes on with the metrics it began with");
    samples = sums[0];
    loss_ = sums[1];
    auto next = sums.begin() + 2;
    for (std::vector<double>& state : states_)
      for (double& number : state) number = *next++;
  }
  // Of a loss that a step tracks itself (metrics::Mean), what that makes of it.
  double mean_loss() const { return tracks_loss() ? logs_[0].result(states_[0]) : loss_ / samples; }
  size_t terms() const { return logs_.size() - (tracks_loss() ? 1 : 0); }
  void write_terms(std::vector<double>& out) const {
    const size_t first = tracks_loss() ? 1 : 0;
    for (size_t t = first; t < logs_.size(); ++t)
      out[t - first] =
          logs_[t].result ? logs_[t].result(states_[t]) : states_[t][1] / states_[t][0];
  }

  double samples = 0;

 private:
  bool tracks_loss() const { return !logs_.empty() && logs_[0].name == "loss"; }

  const std::vector<LogTerm>& logs_;
  double loss_ = 0;
  std::vector<std::vector<double>> states_;  // as the log's terms
};

// Reads samples [begin, begin + rows) of the (shuffled) epoch into the signature's inputs. The
// source has the time of the step to find the batch behind them.
class Feeder {
 public:
  Feeder(int64_t batch, const Source& source) {
    indices_.resize(static_cast<size_t>(batch));
    next_.resize(static_cast<size_t>(batch));
    places_.resize(source.fields().size());
  }

  void feed(Session& session, size_t signature, Source& source, const Permutation* order,
            int64_t begin, int64_t rows) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (std::exchange(ahead_, {}) == Batch{begin, rows}) return;
    session.drop_ahead();
    read(session, signature, source, order, begin, rows);
  }

  // The same for the step that comes next, while one runs. What goes wrong is told when it is the
  // step's turn.
  void feed_ahead(Session& session, size_t signature, Source& source, const Permutation* order,
                  int64_t begin, int64_t rows) {
    session.begin_ahead();
    try {
      read(session, signature, source, order, begin, rows);
      session.send_ahead(signature);
      ahead_ = {begin, rows};
    } catch (...) {
      session.drop_ahead();
      failure_ = std::current_exception();
    }
  }

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
            int64_t begin, int64_t rows) {
    list(indices_, order, begin, rows);
    const bool predicting = session.plan().signatures[signature].kind == StepKind::predict;
    for (size_t f = 0; f < places_.size(); ++f) {
      const bool wanted = !predicting || source.fields()[f].role == Role::x;
      places_[f] = wanted ? session.input(signature, f) : nullptr;
    }
    source.read({indices_.data(), static_cast<size_t>(rows)}, places_);
    if (!predicting) write_facts(session, signature, places_.size());
    const int64_t more = std::min(rows, source.size() - begin - rows);
    list(next_, order, begin + rows, more);
    source.expect({next_.data(), static_cast<size_t>(more)});
  }

  static void list(std::vector<int64_t>& to, const Permutation* order, int64_t begin,
                   int64_t rows) {
    for (int64_t i = 0; i < rows; ++i)
      to[static_cast<size_t>(i)] = order ? (*order)(begin + i) : begin + i;
  }
  std::vector<int64_t> indices_, next_;
  std::vector<void*> places_;
  Batch ahead_;  // of the pass that is under way, already with the session
  std::exception_ptr failure_;
};

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
    session.run(signature, params, nullptr, beside);
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
    bool finite = true;
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
      finite = session_.run_if_finite(signature, params, times, beside);
    event_.ms = ms_since(start);
    const HeapCounts after = heap_counts();
    event_.step = ++result_.steps;
    ++here_;
    event_.loss = kept_scalar(session_, signature, 0);
    means_.add(session_, signature, rows);
    event_.mean_loss = means_.mean_loss();
    means_.write_terms(event_.mean_metrics);
    account(before, after, rows, busy);
    result_.finite = scaled || std::isfinite(event_.loss);
    if (!finite && !options_.resident_batch) {
      feeder_.feed(session_, signature, train_, order, begin, rows);
      result_.cause = find_non_finite(session_, signature, params, feeder_.samples(rows));
    }
    observer_.on_step(event_);
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
  Means means_;
  std::optional<Permutation> order_;  // of the pass over the data that is under way
  int64_t pass_ = 0;
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
  Means means(session, StepKind::evaluate);
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

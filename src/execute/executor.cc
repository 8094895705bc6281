#include "execute/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "execute/tracks.h"
#include "op/moving_statistics.h"
#include "op/step_params.h"

namespace pl {
namespace {

std::string named(const Node& node) {
  return node.path.empty() ? node.op : "[" + node.path + "] " + node.op;
}

}  // namespace

Executor::Executor(const Graph& graph, const Plan& plan, const KernelSet& kernels, ArenaView arena,
                   Backend* device)
    : graph_(graph),
      arena_(std::move(arena)),
      persistent_(plan.persistent),
      alignment_(plan.alignment),
      device_(device && !device->on_host() ? device : nullptr) {
  if (device_) staging_ = device_->reserve_staging(sizeof(double));
  one_by_one_ = device_ && waits_behind_each_op();
  check(arena_.variables.empty() || arena_.variables.size() == plan.variable_at.size(),
        "a place for every variable");
  for (size_t v = 0; v < arena_.variables.size(); ++v)
    if (graph.variables[v].meta.bytes() > 0)
      places_.emplace_back(plan.variable_at[v], static_cast<char*>(arena_.variables[v]));
  std::sort(places_.begin(), places_.end());
  auto bytes = [&](ValueId id) { return graph.values[index(id)].meta.bytes(); };
  for (size_t v = 0; v < graph.variables.size(); ++v)
    grant(plan.variable_at[v], graph.variables[v].meta.bytes());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    inputs_.push_back(grant(plan.input_at[i], bytes(graph.inputs[i])));
  for (size_t k = 0; k < graph.keep.size(); ++k)
    kept_.push_back(grant(plan.keep_at[k], bytes(graph.keep[k])));
  for (size_t l = 0; l < graph.loops.size(); ++l)
    loops_.push_back(bind_loop(graph.loops[l], plan.loops[l], kernels.loops[l]));
  for (const Step& step : plan.steps) steps_.push_back(bind(graph, step, kernels));
  bind_stays(graph, plan, steps_);
  forward_ = find_forward();
  join_steps(graph, steps_, {}, forward_);
}

// Steps up to the one that writes the first kept value. Moving statistics are written on the way;
// where anything else is, there is no such place.
size_t Executor::find_forward() const {
  if (graph_.keep.empty()) return 0;
  const Value& loss = graph_.values[index(graph_.keep[0])];
  if (loss.meta.elements() != 1 || !is_floating(loss.meta.dtype)) return 0;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Node& node = graph_.nodes[index(steps_[s].node)];
    for (ValueId out : node.out) {
      if (out == graph_.keep[0]) return s + 1;
      if (graph_.values[index(out)].variable >= 0 && node.op != kMovingStatistics.name) return 0;
    }
  }
  return 0;
}

Executor::Bound Executor::bind(const Graph& graph, const Step& step, const KernelSet& kernels) {
  auto bytes = [&](ValueId id) { return graph.values[index(id)].meta.bytes(); };
  const Node& node = graph.nodes[index(step.node)];
  Bound bound{.kernel = kernels.nodes[index(step.node)].get(),
              .node = step.node,
              .workspace = nullptr,
              .loop = node.loop};
  check(bound.kernel != nullptr || node.loop >= 0, "a step has no prepared kernel");
  for (size_t i = 0; i < step.in.size(); ++i)
    bound.in.push_back(grant(step.in[i], bytes(node.in[i])));
  for (size_t o = 0; o < step.out.size(); ++o)
    bound.out.push_back(grant(step.out[o], bytes(node.out[o])));
  if (bound.kernel && bound.kernel->workspace_bytes > 0)
    bound.workspace = grant(step.workspace_at, bound.kernel->workspace_bytes);
  return bound;
}

Executor::BoundLoop Executor::bind_loop(const Loop& loop, const Plan& plan,
                                        const KernelSet& kernels) {
  check(loop.body.loops.empty() && loop.carried.empty(), "loops in loops are not run");
  BoundLoop bound{.body = &loop.body,
                  .trips = loop.trips,
                  .samples = loop.samples,
                  .bands = std::max<int64_t>(1, loop.bands),
                  .device = device_};
  for (const Step& step : plan.steps) bound.steps.push_back(bind(loop.body, step, kernels));
  bound.moves.resize(bound.steps.size(), false);
  bind_stays(loop.body, plan, bound.steps);
  for (Track& track : tracks_of(graph_, loop)) {
    bound.tracks.push_back(std::move(track.at));
    const size_t at = bound.tracks.size() - 1;
    for (size_t s = 0; s < bound.steps.size(); ++s) {
      Bound& step = bound.steps[s];
      const Node& node = loop.body.nodes[index(step.node)];
      auto moves = [&](bool out, size_t operand, void* first) {
        bound.moving.push_back({s, out, operand, static_cast<char*>(first), at});
        bound.moves[s] = true;
      };
      for (size_t i = 0; i < node.in.size(); ++i)
        if (node.in[i] == track.value) moves(false, i, step.in[i]);
      for (size_t o = 0; o < node.out.size(); ++o)
        if (node.out[o] == track.value) moves(true, o, step.out[o]);
    }
  }
  for (const Loop::Out& link : loop.accumulated) {
    const VariableId variable = loop.body.values[index(link.body)].variable;
    const Bytes bytes = loop.body.variables[index(variable)].meta.bytes();
    bound.sums.emplace_back(grant(plan.variable_at[index(variable)], bytes), bytes);
  }
  bound.sums = joined_ranges(std::move(bound.sums), alignment_);
  join_steps(loop.body, bound.steps, bound.moves, 0);
  for (const Loop::In& link : loop.params) {
    const auto& inputs = loop.body.inputs;
    const auto at =
        static_cast<size_t>(std::find(inputs.begin(), inputs.end(), link.body) - inputs.begin());
    const auto& outer = graph_.inputs;
    const auto from =
        static_cast<size_t>(std::find(outer.begin(), outer.end(), link.outer) - outer.begin());
    check(at < inputs.size() && from < outer.size(), "a loop's step parameters are inputs");
    bound.params.emplace_back(inputs_[from], grant(plan.input_at[at], sizeof(StepParams)));
  }
  return bound;
}

void* Executor::grant(ByteOffset at, Bytes bytes) {
  used_ = std::max(used_, at + align_up(bytes, alignment_));
  if (at >= persistent_) return arena_.transient + (at - persistent_);
  if (arena_.host && at >= arena_.host_at) return arena_.host + (at - arena_.host_at);
  return places_.empty() ? arena_.persistent + at : variable_place(at);
}

void* Executor::variable_place(ByteOffset at) const {
  auto above =
      std::upper_bound(places_.begin(), places_.end(), at,
                       [](ByteOffset value, const auto& place) { return value < place.first; });
  if (above == places_.begin()) return places_.front().second;  // of no bytes
  --above;
  return above->second + (at - above->first);
}

size_t Executor::timed_steps() const {
  size_t count = steps_.size();
  for (const BoundLoop& loop : loops_) count += loop.steps.size();
  return count;
}

void Executor::step(StepTimes* times) {
  begin_times(times);
  int64_t* each = times ? times->data() : nullptr;
  run_forward(each);
  run_rest(each);
  end_times(times);
}

void Executor::run_forward(int64_t* times) {
  if (!forward_launches_.empty() && !times)
    launch(forward_launches_);
  else
    run(graph_, std::span(steps_).first(forward_), times);
}

void Executor::run_rest(int64_t* times) {
  if (!rest_launches_.empty() && !times)
    launch(rest_launches_);
  else
    run(graph_, steps_, times, forward_);
}

void Executor::warm_up() {
  waits_ = device_ != nullptr;
  run(graph_, steps_, nullptr);
  waits_ = false;
}

void Executor::wait() {
  device_->synchronize();
  waited();
}

BackendError Executor::located(const DeviceFault& fault, bool exact) const {
  const std::string received = ": expected kernels that end, received ";
  if (!begun_.first)
    return BackendError("before this step's kernels" + received + fault.what() + kFaultRemedy);
  const bool one = begun_.first == begun_.last;
  if (exact && one) return BackendError(named(*begun_.first) + ": " + fault.what());
  return BackendError((one || shares_ ? "before or in " : "") +
                      (one ? "" : named(*begun_.first) + " to ") + named(*begun_.last) + received +
                      fault.what() + kFaultRemedy);
}

void Executor::begin_times(StepTimes* times) const {
  check(!times || times->size() == timed_steps(), "one time per step");
  if (times) std::fill(times->begin(), times->end(), 0);
}

void Executor::end_times(StepTimes* times) const {
  if (!times) return;
  size_t at = steps_.size();
  for (const BoundLoop& loop : loops_)
    for (size_t s = 0; s < loop.steps.size(); ++s) (*times)[at++] /= loop.trips;
}

namespace {

bool finite_scalar(const void* data, Dtype dtype) {
  return dtype == Dtype::float64 ? std::isfinite(*static_cast<const double*>(data))
                                 : std::isfinite(*static_cast<const float*>(data));
}

struct Stop {};  // of a watched step

}  // namespace

bool Executor::step_if_finite(StepTimes* times) {
  if (forward_ == 0) {
    step(times);
    return true;
  }
  begin_times(times);
  int64_t* each = times ? times->data() : nullptr;
  run_forward(each);
  if (!finite_loss()) return false;
  run_rest(each);
  end_times(times);
  return true;
}

bool Executor::finite_loss() {
  const Meta& meta = graph_.values[index(graph_.keep[0])].meta;
  const void* loss = kept_[0];
  if (device_) {
    try {
      device_->copy_out(staging_->data(), loss, meta.bytes());
      wait();
    } catch (const DeviceFault& fault) {
      throw located(fault);
    }
    loss = staging_->data();
  }
  return finite_scalar(loss, meta.dtype);
}

void Executor::watch_forward(const Watch& watch) {
  watch_ = &watch;
  try {
    run(graph_, std::span(steps_).first(forward_), nullptr);
  } catch (const Stop&) {
  }
  watch_ = nullptr;
}

void Executor::run(const Graph& graph, std::span<const Bound> steps, int64_t* times, size_t first) {
  using Clock = std::chrono::steady_clock;
  // Each step's time, values or failure is asked for.
  const bool apart = times || watch_ || one_by_one_;
  const Bound* current = nullptr;
  Clock::time_point before;
  if (times && device_) wait();
  if (times) before = Clock::now();
  try {
    for (size_t s = first; s < steps.size(); ++s) {
      current = &steps[s];
      if (work_) run_copies(current->before);
      if (!apart && !waits_ && current->waits) continue;  // it runs where the last of them stands
      const bool joins = !apart && !current->together.empty();
      if (device_ && current->loop < 0)
        begin(graph.nodes[index(steps[joins ? current->together.front() : s].node)],
              graph.nodes[index(current->node)]);
      if (joins) run_together(steps, current->together);
      if (joins && !waits_) continue;  // to warm up both are run
      if (current->loop >= 0)
        run_loop(loops_[index(current->loop)], times);
      else
        current->kernel->run(current->in.data(), current->out.data(), current->workspace);
      if (work_) run_copies(current->behind);
      if (device_ && (waits_ || apart)) wait();
      if (watch_ && current->loop < 0 && !(*watch_)(graph, *current)) throw Stop();
      if (!times) continue;
      const Clock::time_point after = Clock::now();
      if (current->loop < 0) times[s] += std::chrono::nanoseconds(after - before).count();
      before = after;
    }
    if (work_) work_->join_stays();
  } catch (const DeviceFault& fault) {
    throw located(fault, waits_ || apart);
  } catch (const Error& error) {
    const Node& node = graph.nodes[index(current->node)];
    if (node.loop >= 0) throw;  // names a node of the body
    throw BackendError(named(node) + ": " + error.what());
  }
}

namespace {

// The step's parameters with a trip's rows and band, which are zero in a whole step's.
void write_trip_params(Backend* device, const void* from, void* to, const StepParams& trip) {
  if (device) {
    int64_t add[sizeof(StepParams) / sizeof(int64_t)];
    std::memcpy(add, &trip, sizeof trip);
    device->add_words(static_cast<int64_t*>(to), static_cast<const int64_t*>(from), add);
    return;
  }
  StepParams step;
  std::memcpy(&step, from, sizeof step);
  step.row_offset += trip.row_offset;
  step.call_rows = trip.call_rows;
  step.band = trip.band;
  std::memcpy(to, &step, sizeof step);
}

}  // namespace

void Executor::BoundLoop::write_params(int64_t trip) const {
  StepParams step;
  step.row_offset = trip / bands * samples;
  step.call_rows = samples;
  step.band = trip % bands;
  for (const auto& [from, to] : params) write_trip_params(device, from, to, step);
}

void Executor::BoundLoop::move(int64_t trip, std::vector<Bound>& bound) const {
  for (const Moving& move : moving)
    (move.out ? bound[move.step].out : bound[move.step].in)[move.operand] =
        move.first + tracks[move.track][static_cast<size_t>(trip)];
}

void Executor::BoundLoop::prepare(int64_t trip, std::vector<Bound>& bound) const {
  write_params(trip);
  move(trip, bound);
}

void Executor::zero_sums(const BoundLoop& loop) {
  for (const auto& [sum, bytes] : loop.sums) {
    if (device_)
      device_->zero(sum, bytes);
    else
      std::memset(sum, 0, static_cast<size_t>(bytes));
  }
}

void Executor::run_loop(BoundLoop& loop, int64_t* times) {
  if (times) times += steps_.size();
  for (const BoundLoop* before = loops_.data(); times && before != &loop; ++before)
    times += before->steps.size();
  zero_sums(loop);
  // All trips run the same kernels: to warm up, one is enough.
  const int64_t trips = waits_ ? 1 : loop.trips;
  for (int64_t trip = 0; trip < trips; ++trip) {
    loop.prepare(trip, loop.steps);
    run(*loop.body, loop.steps, times);
  }
}

}  // namespace pl

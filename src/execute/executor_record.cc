// Recording: the steps of a plan become a few launches. A loop's body is recorded once and launched
// in every trip, but for steps whose operands lie elsewhere from trip to trip (slices of the
// batch), which are launched one by one.
#include "execute/executor.h"

namespace pl {
namespace {

constexpr size_t kWorthRecording = 4;  // steps; fewer are launched one by one

}  // namespace

bool Executor::record() {
  if (!device_ || one_by_one_) return false;
  Launches forward = record_steps(0, forward_), rest = record_steps(forward_, steps_.size());
  forward_launches_ = std::move(forward);  // both or none, where the device has no room for them
  rest_launches_ = std::move(rest);
  waited();  // nothing ran
  return !forward_launches_.empty() || !rest_launches_.empty();
}

void Executor::launch(const Launches& launches) {
  try {
    for (const Launched& one : launches) {
      if (one.first) begin(*one.first, *one.last);
      one.run();
    }
  } catch (const DeviceFault& fault) {
    throw located(fault);
  }
}

// Empty: the device does not record.
Executor::Launches Executor::record_steps(size_t first, size_t last) {
  Launches launches;
  size_t from = first;
  for (size_t s = first; s <= last; ++s) {
    const bool loop = s < last && steps_[s].loop >= 0;
    if (s < last && !loop) continue;
    if (from < s) {
      const std::shared_ptr<Recording> recording =
          device_->record([&] { run(graph_, std::span(steps_).first(s), nullptr, from); });
      if (!recording) return {};
      launches.push_back({[recording] { recording->launch(); },
                          &graph_.nodes[index(steps_[from].node)],
                          &graph_.nodes[index(steps_[s - 1].node)]});
    }
    if (loop) record_loop(loops_[index(steps_[s].loop)], launches);
    if (loop && launches.empty()) return {};
    from = s + 1;
  }
  return launches;
}

void Executor::record_loop(BoundLoop& loop, Launches& launches) {
  // Runs of steps that are the same in every trip; the others, and short runs, have no recording.
  struct Run {
    size_t first, last;
    std::shared_ptr<Recording> recording;
  };
  std::vector<Run> runs;
  for (size_t s = 0; s < loop.steps.size();) {
    size_t end = s + 1;
    while (end < loop.steps.size() && loop.moves[end] == loop.moves[s]) ++end;
    Run run{s, end, nullptr};
    if (!loop.moves[s] && end - s >= kWorthRecording) {
      run.recording = device_->record(
          [&] { this->run(*loop.body, std::span(loop.steps).first(end), nullptr, s); });
      if (!run.recording) {
        launches.clear();
        return;
      }
    }
    runs.push_back(std::move(run));
    s = end;
  }
  if (!loop.sums.empty())
    if (const std::shared_ptr<Recording> zeros = device_->record([&] { zero_sums(loop); }))
      launches.push_back({[zeros] { zeros->launch(); }});
  for (int64_t trip = 0; trip < loop.trips; ++trip) {
    if (!loop.params.empty()) launches.push_back({[&loop, trip] { loop.write_params(trip); }});
    std::vector<Bound> steps = loop.steps;
    loop.move(trip, steps);
    for (const Run& run : runs) {
      if (run.recording) {
        const auto node = [&](size_t s) { return &loop.body->nodes[index(loop.steps[s].node)]; };
        launches.push_back({[recording = run.recording] { recording->launch(); }, node(run.first),
                            node(run.last - 1)});
        continue;
      }
      for (size_t s = run.first; s < run.last; ++s) {
        steps[s].together.clear();
        steps[s].waits = false;
        launches.push_back({[this, &loop, step = steps[s]] {
          this->run(*loop.body, std::span(&step, 1), nullptr);
        }});
      }
    }
  }
}

}  // namespace pl

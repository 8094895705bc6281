#include "train/budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "train/batch_search.h"
#include "train/device_full.h"
#include "train/session.h"

namespace pl {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

std::string line(const char* format, const std::string& a, const std::string& b,
                 const std::string& c = "") {
  char text[256];
  std::snprintf(text, sizeof text, format, a.c_str(), b.c_str(), c.c_str());
  return text;
}

// "1.07 x the time of a step without limit".
std::string times(double ms, double unlimited) {
  if (!(unlimited > 0)) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%.2f x the step time without limit", ms / unlimited);
  return text;
}

std::string both(Bytes bytes) { return std::to_string(bytes) + " (" + format_bytes(bytes) + ")"; }

}  // namespace

Budget::Budget(const std::string& text)
    : bytes_(text == "max" ? host_room().least() : parse_bytes(text, "memory")),
      max_(text == "max") {}

namespace {

// Values that leave in one step, and their bytes.
void add_stays(const Graph& graph, const Plan& plan, int64_t trips, PlanReport& report) {
  for (const HostStay& stay : plan.stays) {
    report.stays += trips;
    report.sent += trips * graph.values[static_cast<size_t>(stay.value)].meta.bytes();
  }
  for (size_t l = 0; l < plan.loops.size(); ++l)
    add_stays(graph.loops[l].body, plan.loops[l], graph.loops[l].trips, report);
}

}  // namespace

const char* determinism_of(const PlanReport& report) {
  return report.deterministic ? "deterministic" : "not deterministic";
}

PlanReport describe(const SessionPlan& plan) {
  PlanReport report;
  const Prepared& fullest = plan.prepared[plan.fullest];
  report.process = plan.process();
  report.fixed = plan.outside();
  report.ahead = plan.ahead;
  report.snapshot = plan.snapshot;
  report.arena = plan.arena;
  report.bound = fullest.plan.bound;
  report.persistent = plan.layout.bytes;
  report.host = plan.host_bytes;
  report.away = plan.away;
  report.on_device = plan.on_device;
  report.bill = plan.device;
  report.host_bill = host_bill(plan);
  report.floor = plan.floor;
  report.categories = fullest.plan.at_peak;
  const Prepared& first = plan.prepared.front();
  report.step_ms = plan.ms;
  report.graph_nodes = first.graph.nodes.size();
  report.plan_steps = first.plan.steps.size();
  report.plan_ms = plan.plan_ms;
  report.numerics = first.plan.numerics;
  report.kernels = first.plan.kernels;
  report.culprits = fullest.plan.culprits;
  report.unlimited = plan.unlimited;
  report.split = first.split;
  report.bands = first.bands;
  report.recomputed = first.plan.recomputed;
  add_stays(first.graph, first.plan, 1, report);
  report.minimum = plan.frontier.back().process();
  report.complete = plan.complete;
  report.frontier = plan.frontier;
  report.split_refusal = plan.split_refusal;
  report.band_refusal = plan.band_refusal;
  return report;
}

namespace {
bool on_device(const Backend* backend) { return backend && !backend->on_host(); }
}  // namespace

Bytes system_limit(const Backend* backend) {
  return on_device(backend) ? backend->held() + backend->free()
                            : process_resident() + host_room().least();
}

std::optional<Bytes> Budget::bytes(const Backend* backend) const {
  return max_ && on_device(backend) ? system_limit(backend) : bytes_;
}

// A device's memory is all taken before the first step.
Bytes measured_peak(const Backend* backend) {
  return on_device(backend) ? backend->held() : process_peak();
}

namespace {

// Switches that are off and would help if they were on.
void try_switches(PlanReport& report, const PlanFor& plan, const PlanOptions& options,
                  Bytes limit) {
  auto attempt = [&](const std::string& change, const Switches& switches) {
    PlanOptions other = options;
    other.budget = limit;
    other.switches = switches;
    const SessionPlan found = plan(report.batch, other);
    if (found.process() <= limit) report.remedies.push_back({change, found.process(), found.ms});
  };
  Switches switches = options.switches;
  if (switches.split) {
    switches.split.reset();
    attempt(report.words.split, switches);
  }
  if (!switches.recompute) {
    switches.recompute = true;
    attempt(options.switches.split ? std::string(report.words.split) + " " + report.words.recompute
                                   : report.words.recompute,
            switches);
  }
}

}  // namespace

void judge(PlanReport& report, const PlanFor& plan, const PlanOptions& options, int64_t most_batch,
           bool want_max_batch, std::optional<Bytes> system) {
  if (!report.budget && !system) return;
  const Bytes limit = std::min(report.budget.value_or(kUnlimited), system.value_or(kUnlimited));
  report.fits = report.process <= limit;
  if (report.fits && (!want_max_batch || report.max_batch || !report.budget)) return;
  BatchFit fit = largest_batch(plan, options, limit,
                               report.fits ? most_batch : std::min(most_batch, report.batch));
  report.max_batch = report.fits ? std::max(fit.batch, report.batch) : fit.batch;
  if (report.fits) return;
  fit = look_closely(fit, plan, options, limit);
  try_switches(report, plan, options, limit);
  if (fit.batch == report.batch)  // the system's room, given as a budget
    report.remedies.push_back(
        {report.words.memory + std::to_string(fit.process), fit.process, fit.step_ms});
  else if (fit.batch > 0)
    report.remedies.push_back(
        {report.words.batch + std::to_string(fit.batch), fit.process, fit.step_ms});
  report.remedies.push_back({report.words.memory + std::to_string(report.minimum), report.minimum,
                             report.frontier.back().ms});
}

std::vector<CurvePoint> batch_curve(const PlanReport& report, const PlanFor& plan,
                                    const PlanOptions& options, int64_t most_batch) {
  std::vector<CurvePoint> curve;
  PlanOptions each = options;
  each.all = false;
  for (int64_t batch = 1; batch <= std::min(most_batch, 4 * report.batch); batch *= 2) {
    const SessionPlan found = plan(batch, each);
    if (options.budget && found.process() > *options.budget) break;
    curve.push_back({batch, found.process(), found.ms});
  }
  return curve;
}

std::string explain(const PlanReport& r) {
  std::string out;
  if (r.complete)
    out += std::string("  smallest budget that fits: ") + r.words.memory +
           std::to_string(r.minimum) + " (" + format_bytes(r.minimum) + ")\n";
  if (r.complete && r.callbacks > 0 && !r.on_device)
    out += "  of it at most " + std::to_string(r.callbacks) + " (" + format_bytes(r.callbacks) +
           ") for writing checkpoints and for other callbacks\n";
  out += "  no plan can need less than " + std::to_string(r.floor) + " (" + format_bytes(r.floor) +
         "): variables, runtime and the operands of the largest single step\n";
  out += "  what fills it:\n";
  for (const LiveValue& value : r.culprits)
    out += line("    %11s  %-28s %s\n", format_bytes(value.bytes),
                value.path + " (" + value.op + ")", value.meta.text());
  for (const std::string& refusal : {r.split_refusal, r.band_refusal})
    if (!refusal.empty()) out += "  " + refusal + "\n";
  if (!r.remedies.empty()) out += "  what would make it fit:\n";
  for (const Remedy& remedy : r.remedies)
    out += line("    %-34s %11s  %s\n", remedy.change, format_bytes(remedy.process_bytes),
                times(remedy.step_ms, r.unlimited.ms));
  return out;
}

namespace {
// A device's room counts where the plan may have all of it: others then have what is missing.
std::string others_on(const Backend* backend, std::optional<Bytes> budget) {
  return on_device(backend) && budget.value_or(kUnlimited) >= system_limit(backend)
             ? backend->holders()
             : "";
}
}  // namespace

void require_room(const PlanReport& report, Bytes held, const Backend* backend) {
  if (report.budget && report.process > *report.budget)
    throw DoesNotFit("[plan] expected a plan within " + std::string(report.words.memory) +
                     both(*report.budget) + ", needs " + both(report.process) +
                     others_on(backend, report.budget) + "\n" + explain(report));
  if (on_device(backend)) {
    const Bytes limit = system_limit(backend);
    if (report.process > limit)
      throw DoesNotFit("[reserve] expected " + format_bytes(report.process) +
                       " of the device's memory, it has room for " + format_bytes(limit) +
                       backend->holders() + "\n" + explain(report));
    return;
  }
  const HostRoom room = host_room();
  if (const Bytes limit = system_limit(); !report.fits && report.process > limit)
    throw DoesNotFit("[reserve] expected " + format_bytes(report.process) + " for the process, " +
                     room.tightest() + " has room for " + format_bytes(limit) +
                     " with what it holds already\n" + explain(report));
  const Bytes needed = report.arena + report.snapshot - held;
  if (needed > room.least())
    throw DoesNotFit("[reserve] expected " + format_bytes(needed) + " of free memory, " +
                     room.tightest() + " has room for " + format_bytes(room.least()) + "\n" +
                     explain(report));
}

DoesNotFit refused(const DoesNotFit& error, const PlanReport& report, const Backend* backend) {
  std::string text = error.what() + std::string("\n");
  if (on_device(backend) && !dynamic_cast<const DeviceFull*>(&error))
    return DoesNotFit(error.what());  // the host's memory, which no plan of the device is about
  if (on_device(backend))
    text += "  what the device has room for now: " + std::string(report.words.memory) +
            both(system_limit(backend)) + "\n";
  return DoesNotFit(text + explain(report));
}

std::string check_resident(const PlanReport& report, const Backend* backend) {
  const Bytes resident = on_device(backend) ? backend->held() : process_resident();
  if (resident <= report.process) return "";
  const std::string text = "[reserve] the process holds " + format_bytes(resident) +
                           (on_device(backend) ? " of the device" : "") +
                           " after preparation, more than the planned " +
                           format_bytes(report.process) + " on this system";
  if (report.budget && resident > *report.budget)
    throw DoesNotFit(text + "; try " + report.words.memory + std::to_string(resident + 2 * kMiB));
  return text;
}

}  // namespace pl

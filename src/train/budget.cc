#include "train/budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

std::string line(const char* format, const std::string& a, const std::string& b,
                 const std::string& c = "") {
  char text[256];
  std::snprintf(text, sizeof text, format, a.c_str(), b.c_str(), c.c_str());
  return text;
}

std::string both(Bytes bytes) { return std::to_string(bytes) + " (" + format_bytes(bytes) + ")"; }

}  // namespace

Budget::Budget(const std::string& text)
    : bytes_(text == "max" ? host_room().least() : parse_bytes(text, "memory")) {}

PlanReport describe(const SessionPlan& plan) {
  PlanReport report;
  const Prepared& fullest = plan.prepared[plan.fullest];
  report.process = plan.process();
  report.fixed = plan.fixed;
  report.arena = plan.arena;
  report.bound = fullest.plan.bound;
  report.persistent = plan.layout.bytes;
  report.floor = plan.floor;
  report.categories = fullest.plan.at_peak;
  const Prepared& first = plan.prepared.front();
  report.step_ms = first.plan.ms;
  report.graph_nodes = first.graph.nodes.size();
  report.plan_steps = first.plan.steps.size();
  report.plan_ms = plan.plan_ms;
  report.numerics = first.plan.numerics;
  report.culprits = fullest.plan.culprits;
  report.unlimited = plan.unlimited;
  report.split = first.split;
  report.recomputed = first.plan.recomputed;
  report.minimum = plan.frontier.back().process();
  report.complete = plan.complete;
  report.frontier = plan.frontier;
  return report;
}

Bytes system_limit() { return process_resident() + host_room().least(); }

void judge(PlanReport& report, const PlanForBatch& plan, int64_t most_batch, bool want_max_batch,
           std::optional<Bytes> system) {
  if (!report.budget && !system) return;
  const Bytes limit = std::min(report.budget.value_or(kUnlimited), system.value_or(kUnlimited));
  report.fits = report.process <= limit;
  if (report.fits && (!want_max_batch || report.max_batch || !report.budget)) return;
  const BatchFit fit =
      largest_batch(plan, limit, report.fits ? most_batch : std::min(most_batch, report.batch - 1));
  report.max_batch = fit.batch;
  if (report.fits) return;
  if (fit.batch > 0)
    report.remedies.push_back(
        {report.words.batch + std::to_string(fit.batch), fit.process, fit.step_ms});
  report.remedies.push_back(
      {report.words.memory + std::to_string(report.process), report.process, report.step_ms});
}

std::string explain(const PlanReport& r) {
  std::string out;
  out += std::string("  smallest budget that fits: ") + r.words.memory + std::to_string(r.process) +
         " (" + format_bytes(r.process) + ")\n";
  out += "  no plan can need less than " + std::to_string(r.floor) + " (" + format_bytes(r.floor) +
         "): variables, runtime and the operands of the largest single step\n";
  out += "  what fills it:\n";
  for (const LiveValue& value : r.culprits)
    out += line("    %11s  %-28s %s\n", format_bytes(value.bytes),
                value.path + " (" + value.op + ")", value.meta.text());
  out += "  what would make it fit:\n";
  for (const Remedy& remedy : r.remedies)
    out += line("    %-22s %11s\n", remedy.change, format_bytes(remedy.process_bytes));
  return out;
}

void require_room(const PlanReport& report, Bytes held) {
  if (report.budget && report.process > *report.budget)
    throw DoesNotFit("[plan] expected a plan within " + std::string(report.words.memory) +
                     both(*report.budget) + ", needs " + both(report.process) + "\n" +
                     explain(report));
  const HostRoom room = host_room();
  if (!report.fits || report.arena - held > room.least())
    throw DoesNotFit("[reserve] expected " + format_bytes(report.arena - held) +
                     " of free memory, " + room.tightest() + " has room for " +
                     format_bytes(room.least()) + "\n" + explain(report));
}

std::string check_resident(const PlanReport& report) {
  const Bytes resident = process_resident();
  if (resident <= report.process) return "";
  const std::string text = "[reserve] the process holds " + format_bytes(resident) +
                           " after preparation, more than the planned " +
                           format_bytes(report.process) + " on this system";
  if (report.budget && resident > *report.budget)
    throw DoesNotFit(text + "; try " + report.words.memory + std::to_string(resident + 2 * kMiB));
  return text;
}

}  // namespace pl

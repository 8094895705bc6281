#include "report/plan_report.h"

#include <algorithm>
#include <cstdio>

namespace pl {
namespace {

std::string line(const char* format, const std::string& a, const std::string& b,
                 const std::string& c = "") {
  char text[256];
  std::snprintf(text, sizeof text, format, a.c_str(), b.c_str(), c.c_str());
  return text;
}

// A bar of `width` cells, part/whole filled.
std::string bar(double fraction, int width) {
  std::string out;
  const int full = std::clamp(static_cast<int>(fraction * width + 0.5), 0, width);
  for (int i = 0; i < width; ++i) out += i < full ? "█" : "░";
  return out;
}

// Predicted time over that without limit, minus one.
double overhead(const PlanReport& r) {
  return r.unlimited.ms > 0 ? std::max(0.0, r.step_ms / r.unlimited.ms - 1) : 0.0;
}

Json frontier_json(const PlanReport& r) {
  Json list = Json::array();
  for (const SessionPoint& point : r.frontier)
    list.push(Json::object()
                  .set("process_bytes", point.process())
                  .set("step_ms", point.ms)
                  .set("split", point.split)
                  .set("bands", point.bands)
                  .set("offloaded_bytes", point.host_bytes + point.away)
                  .set("recomputed_bytes", point.recomputed.bytes));
  return list;
}

Json offloaded_json(const PlanReport& r) {
  return Json::object()
      .set("state_bytes", r.host)
      .set("activation_bytes", r.away)
      .set("values", r.stays)
      .set("copied_bytes", r.sent);
}

// Their sum, with ahead_bytes, is fixed_bytes.
Json device_json(const DeviceBill& bill) {
  return Json::object()
      .set("context_bytes", bill.context)
      .set("code_bytes", bill.code)
      .set("recording_bytes", bill.recordings)
      .set("page_table_bytes", bill.page_tables)
      .set("rounding_bytes", bill.rounding);
}

// Their sum is host_bytes.
Json host_json(const HostBill& bill) {
  return Json::object()
      .set("state_bytes", bill.state)
      .set("activation_bytes", bill.activations)
      .set("staging_bytes", bill.staging)
      .set("copy_bytes", bill.copy)
      .set("snapshot_bytes", bill.snapshot)
      .set("pipeline_bytes", bill.pipeline)
      .set("callback_bytes", bill.callbacks);
}

Json curve_json(const PlanReport& r) {
  Json list = Json::array();
  for (const CurvePoint& point : r.curve)
    list.push(Json::object()
                  .set("batch", point.batch)
                  .set("process_bytes", point.process_bytes)
                  .set("step_ms", point.step_ms)
                  .set("samples_per_s", point.step_ms > 0
                                            ? 1e3 * static_cast<double>(point.batch) / point.step_ms
                                            : 0.0));
  return list;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

// What was done to fit, in a line.
std::string moves_text(const PlanReport& r) {
  std::string out;
  if (r.bands > 0)
    out += std::to_string(r.bands) + " bands of each image";
  else if (r.split > 1)
    out += std::to_string(r.split) + " micro-batches of " + std::to_string(r.batch / r.split);
  if (r.recomputed.values > 0)
    out += (out.empty() ? "" : ", ") + format_bytes(r.recomputed.bytes) + " recomputed";
  if (r.host > 0)
    out += (out.empty() ? "" : ", ") + format_bytes(r.host) + " of optimiser state on the host";
  if (r.stays > 0)
    out += (out.empty() ? "" : ", ") + format_bytes(r.sent) +
           " of activations on the host between two uses";
  for (size_t i = 0; i < r.remat.size(); ++i) out += (i ? ", " : " (by hand: ") + r.remat[i];
  if (!r.remat.empty()) out += ")";
  return out;
}

std::string frontier_text(const PlanReport& r) {
  std::string out = "\nMemory against time, every plan worth having:\n";
  const double most = static_cast<double>(std::max<Bytes>(r.frontier.front().process(), 1));
  for (const SessionPoint& point : r.frontier) {
    std::string moves;
    if (point.bands > 0)
      moves += "  " + std::to_string(point.bands) + " bands";
    else if (point.split > 1)
      moves += "  " + std::to_string(point.split) + " micro-batches";
    if (point.recomputed.bytes > 0)
      moves += "  " + format_bytes(point.recomputed.bytes) + " recomputed";
    if (const Bytes host = point.host_bytes + point.away; host > 0)
      moves += "  " + format_bytes(host) + " on the host";
    char time[32];
    std::snprintf(time, sizeof time, "%+6.1f %%", 100 * (point.ms / r.unlimited.ms - 1));
    out += line("  %11s %s %s", format_bytes(point.process()), std::string(time),
                bar(static_cast<double>(point.process()) / most, 24)) +
           moves + "\n";
  }
  return out;
}

std::string curve_text(const PlanReport& r) {
  std::string out = "\n  batch      memory   samples/s\n";
  for (const CurvePoint& point : r.curve) {
    char text[96];
    std::snprintf(text, sizeof text, "  %5lld %11s %11.0f\n", static_cast<long long>(point.batch),
                  format_bytes(point.process_bytes).c_str(),
                  point.step_ms > 0 ? 1e3 * static_cast<double>(point.batch) / point.step_ms : 0);
    out += text;
  }
  return out;
}

}  // namespace

Json to_json(const PlanReport& r) {
  Json categories = Json::object();
  for (int c = 0; c < kCategories; ++c)
    categories.set(name_of(static_cast<Category>(c)), r.categories[static_cast<size_t>(c)]);
  Json remedies = Json::array();
  for (const Remedy& remedy : r.remedies)
    remedies.push(Json::object()
                      .set("change", remedy.change)
                      .set("process_bytes", remedy.process_bytes)
                      .set("step_ms", remedy.step_ms));
  Json culprits = Json::array();
  for (const LiveValue& value : r.culprits)
    culprits.push(Json::object()
                      .set("path", value.path)
                      .set("op", value.op)
                      .set("dtype", name_of(value.meta.dtype))
                      .set("shape", value.meta.shape.text())
                      .set("category", name_of(value.category))
                      .set("bytes", value.bytes));
  Json json = Json::object();
  json.set("model", r.model)
      .set("batch", r.batch)
      .set("dtype", name_of(r.dtype))
      .set("optimizer", r.optimizer)
      .set("device", r.device)
      .set("deterministic", r.deterministic)
      .set("threads", r.threads)
      .set("fits", r.fits)
      .set("exact", true)
      .set("budget_bytes", r.budget ? Json(*r.budget) : Json())
      .set("process_bytes", r.process)
      .set("fixed_bytes", r.fixed)
      .set("pipeline_bytes", r.pipeline)
      .set("arena_bytes", r.arena)
      .set("lower_bound_bytes", r.bound)
      .set("persistent_bytes", r.persistent)
      .set("categories", categories)
      .set("step_ms", r.step_ms)
      .set("unlimited", Json::object()
                            .set("arena_bytes", r.unlimited.arena)
                            .set("process_bytes", r.unlimited.process())
                            .set("step_ms", r.unlimited.ms))
      .set("overhead", overhead(r))
      .set("split", r.split)
      .set("bands", r.bands)
      .set("recomputed", Json::object()
                             .set("values", r.recomputed.values)
                             .set("bytes", r.recomputed.bytes)
                             .set("ms", r.recomputed.ms))
      .set("offloaded_bytes", r.host + r.away)
      .set("offloaded", offloaded_json(r))
      .set("ahead_bytes", r.ahead)
      .set("host_bytes", r.host_bill.sum())
      .set("minimum_bytes", r.complete ? Json(r.minimum) : Json())
      .set("bound_bytes", r.floor)
      .set("max_batch", r.max_batch ? Json(*r.max_batch) : Json())
      .set("graph_nodes", r.graph_nodes)
      .set("plan_steps", r.plan_steps)
      .set("plan_ms", r.plan_ms)
      .set("numerics", r.numerics)
      .set("costs", r.costs.empty() ? Json() : Json(r.costs))
      .set("peak_values", culprits)
      .set("remedies", remedies);
  if (r.on_device) json.set("device_bill", device_json(r.bill)).set("host", host_json(r.host_bill));
  if (!r.remat.empty()) {
    Json names = Json::array();
    for (const std::string& name : r.remat) names.push(name);
    json.set("remat", std::move(names));
  }
  if (r.checkpoint_every > 0)
    json.set("checkpoint", Json::object()
                               .set("every", r.checkpoint_every)
                               .set("asynchronous", r.snapshot > 0)
                               .set("bytes", r.snapshot));
  if (r.with_frontier) json.set("frontier", frontier_json(r));
  if (!r.curve.empty()) json.set("curve", curve_json(r));
  return json;
}

namespace {

// Of what: "cuda:0, deterministic", "cpu with 2 threads".
std::string where_text(const PlanReport& r) {
  if (r.on_device) return r.device + ", " + determinism_of(r);
  return r.device + " with " + std::to_string(r.threads) +
         (r.threads == 1 ? " thread" : " threads");
}

// A line for each part of the process, and what a device's steps hold of the host.
std::string bill_text(const PlanReport& r) {
  std::string out;
  const double whole = static_cast<double>(std::max<Bytes>(r.process, 1));
  auto row = [&](const std::string& name, Bytes bytes) {
    if (bytes == 0) return;
    out += line("  %-24s %11s  %s\n", name, format_bytes(bytes),
                bar(static_cast<double>(bytes) / whole, 24));
  };
  for (int c = 0; c < kCategories; ++c)
    row(name_of(static_cast<Category>(c)),
        r.categories[static_cast<size_t>(c)] -
            (static_cast<Category>(c) == Category::optimizer ? r.host : 0));
  row("gaps between values", r.arena - r.bound);
  if (r.on_device) {
    row("context and libraries", r.bill.context);
    row("code and local memory", r.bill.code);
    row("recorded steps", r.bill.recordings);
    row("page tables", r.bill.page_tables);
    row("rounding to pages", r.bill.rounding);
    row("inputs of the next step", r.ahead);
  } else {
    row("runtime and libraries", r.fixed - r.snapshot - r.pipeline);
    row("input pipeline", r.pipeline);
    row("copy for checkpoints", r.snapshot);
  }
  out += line("  %-24s %11s\n", "process", format_bytes(r.process));
  if (!r.on_device) return out;
  out += line("  %-24s %11s\n", "host", format_bytes(r.host_bill.sum()));
  auto part = [&](const char* name, Bytes bytes) {
    if (bytes > 0) out += line("    %-22s %11s\n", name, format_bytes(bytes));
  };
  part("pinned optimiser state", r.host_bill.state);
  part("pinned activations", r.host_bill.activations);
  part("pinned inputs, results", r.host_bill.staging);
  part("copy of the variables", r.host_bill.copy);
  part("copy for checkpoints", r.host_bill.snapshot);
  part("input pipeline", r.host_bill.pipeline);
  part("callbacks", r.host_bill.callbacks);
  return out;
}

std::string checkpoints_text(const PlanReport& r) {
  const std::string none = r.on_device ? "the host's memory" : "the budget";
  return "\nCheckpoints every " + std::to_string(r.checkpoint_every) + " steps, written " +
         (r.snapshot > 0 ? "beside training from a copy of the variables" +
                               std::string(r.on_device ? " in the host's memory" : "")
                         : "between steps: " + none + " has no room for a copy") +
         "\n";
}

}  // namespace

std::string to_text(const PlanReport& r, bool color) {
  const char* strong = color ? "\033[1m" : "";
  const char* plain = color ? "\033[0m" : "";
  std::string out = std::string(strong) + r.model + plain + "  batch " + std::to_string(r.batch) +
                    ", " + std::string(name_of(r.dtype)) + ", " + r.optimizer + ", " +
                    where_text(r) + "\n";
  out += (r.fits ? "Training will use " : "Training needs ") + std::string(strong) +
         format_bytes(r.process) + plain;
  if (r.budget)
    out += r.fits ? " of " + format_bytes(*r.budget) + ": it fits"
                  : "; the budget is " + format_bytes(*r.budget) + ": it does not fit";
  out += "\n";
  if (const std::string moves = moves_text(r); !moves.empty())
    out += "Without a budget it would use " + format_bytes(r.unlimited.process()) +
           "; this plan: " + moves + ", " + percent(overhead(r)) + " more time (predicted)\n";
  out += "\n";
  out += bill_text(r);
  if (!r.culprits.empty()) {
    out += "\nLargest values at the fullest step:\n";
    for (const LiveValue& value : r.culprits)
      out += line("  %11s  %-28s %s\n", format_bytes(value.bytes),
                  value.path + " (" + value.op + ")", value.meta.text());
  }
  if (r.checkpoint_every > 0) out += checkpoints_text(r);
  if (r.complete && r.minimum < r.unlimited.process())
    out += "\nCan be trained in as little as " + format_bytes(r.minimum) + " (--memory " +
           std::to_string(r.minimum) + ")\n";
  if (r.with_frontier) out += frontier_text(r);
  if (!r.curve.empty()) out += curve_text(r);
  if (r.max_batch && r.budget)
    out += "\nLargest batch within the budget: " + std::to_string(*r.max_batch) + "\n";
  return out;
}

}  // namespace pl

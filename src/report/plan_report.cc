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
      .set("threads", r.threads)
      .set("fits", r.fits)
      .set("exact", true)
      .set("budget_bytes", r.budget ? Json(*r.budget) : Json())
      .set("process_bytes", r.process)
      .set("fixed_bytes", r.fixed)
      .set("arena_bytes", r.arena)
      .set("lower_bound_bytes", r.bound)
      .set("persistent_bytes", r.persistent)
      .set("categories", categories)
      .set("step_ms", r.step_ms)
      .set("unlimited", Json::object()
                            .set("arena_bytes", r.arena)
                            .set("process_bytes", r.process)
                            .set("step_ms", r.step_ms))
      .set("overhead", 0.0)
      .set("split", 1)
      .set("recomputed", Json::object().set("values", 0).set("bytes", 0).set("ms", 0.0))
      .set("offloaded_bytes", 0)
      .set("minimum_bytes", r.process)
      .set("bound_bytes", r.floor)
      .set("max_batch", r.max_batch ? Json(*r.max_batch) : Json())
      .set("graph_nodes", r.graph_nodes)
      .set("plan_steps", r.plan_steps)
      .set("plan_ms", r.plan_ms)
      .set("numerics", r.numerics)
      .set("peak_values", culprits)
      .set("remedies", remedies);
  return json;
}

std::string to_text(const PlanReport& r, bool color) {
  const char* strong = color ? "\033[1m" : "";
  const char* plain = color ? "\033[0m" : "";
  std::string out = std::string(strong) + r.model + plain + "  batch " + std::to_string(r.batch) +
                    ", " + std::string(name_of(r.dtype)) + ", " + r.optimizer + ", " + r.device +
                    " with " + std::to_string(r.threads) +
                    (r.threads == 1 ? " thread" : " threads") + "\n";
  out += std::string("Training will use ") + strong + format_bytes(r.process) + plain;
  if (r.budget)
    out += " of " + format_bytes(*r.budget) + (r.fits ? ": it fits" : ": it does not fit");
  out += "\n\n";
  const double whole = static_cast<double>(std::max<Bytes>(r.process, 1));
  auto row = [&](const std::string& name, Bytes bytes) {
    if (bytes == 0) return;
    out += line("  %-24s %11s  %s\n", name, format_bytes(bytes),
                bar(static_cast<double>(bytes) / whole, 24));
  };
  for (int c = 0; c < kCategories; ++c)
    row(name_of(static_cast<Category>(c)), r.categories[static_cast<size_t>(c)]);
  row("gaps between values", r.arena - r.bound);
  row("runtime and libraries", r.fixed);
  out += line("  %-24s %11s\n", "process", format_bytes(r.process));
  if (!r.culprits.empty()) {
    out += "\nLargest values at the fullest step:\n";
    for (const LiveValue& value : r.culprits)
      out += line("  %11s  %-28s %s\n", format_bytes(value.bytes),
                  value.path + " (" + value.op + ")", value.meta.text());
  }
  if (r.max_batch && r.budget)
    out += "\nLargest batch within the budget: " + std::to_string(*r.max_batch) + "\n";
  return out;
}

}  // namespace pl

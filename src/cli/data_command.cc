// plimsoll data: an input pipeline alone. What limits it: the stage that others waited for longest.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/data_page.h"
#include "cli/data_source.h"

namespace pl {
namespace {

Json to_json(const PipelineReport& report) {
  Json stages = Json::array();
  for (const StageReport& stage : report.stages) {
    Json messages = Json::array();
    for (const std::string& message : stage.messages) messages.push(Json(message));
    stages.push(Json::object()
                    .set("name", stage.name)
                    .set("options", stage.options)
                    .set("signature", stage.spec)
                    .set("elements", stage.elements)
                    .set("floor_bytes", stage.floor)
                    .set("element_bytes", stage.element_bytes)
                    .set("parallel", stage.parallel)
                    .set("ahead", stage.held_peak)
                    .set("waited_ms", static_cast<double>(stage.waited_ns) / 1e6)
                    .set("skipped", stage.skipped)
                    .set("skipped_messages", messages));
  }
  return stages;
}

// Whose elements somebody waited for longest; empty: nobody waited.
std::string limiting_stage(const PipelineReport& report) {
  const auto most = std::max_element(report.stages.begin(), report.stages.end(),
                                     [](const StageReport& a, const StageReport& b) {
                                       // A prefetch queue waits for what is behind it.
                                       const auto waited = [](const StageReport& s) {
                                         return s.name.starts_with("prefetch") ? 0 : s.waited_ns;
                                       };
                                       return waited(a) < waited(b);
                                     });
  return most == report.stages.end() || most->waited_ns == 0 ? "" : most->name;
}

constexpr size_t kShownBatches = 2, kShownSamples = 32;

// Looked at before the run that is timed, under the same budget.
std::vector<std::vector<SampleView>> sample_batches(const Dataset& data, bool batched) {
  std::vector<std::vector<SampleView>> batches;
  DatasetIterator iterator = data.iterate();
  for (Element element; batches.size() < kShownBatches && iterator.next(element);)
    batches.push_back(view_samples(data.element_spec(), element, batched, kShownSamples));
  return batches;
}

}  // namespace

int run_data(const DataOptions& options) {
  const OpenedData opened = open_samples(options);
  for (const std::string& note : opened.notes)
    std::fprintf(options.json ? stderr : human_stream(), "%s\n", note.c_str());
  Dataset data = opened.samples;
  if (options.skip_errors) data = data.ignore_errors();
  // Lines are padded; records of unknown length come one by one.
  const bool batched = opened.lines || data.element_spec().known();
  if (batched) data = opened.lines ? data.padded_batch(options.batch) : data.batch(options.batch);
  data = data.prefetch(AUTOTUNE).with_options(
      {.memory = options.memory.value_or(0), .threads = options.threads, .seed = options.seed});
  DataPage page{.source = options.source};
  if (!options.html.empty()) {
    check_writable(options.html);
    page.batches = sample_batches(data, batched);
  }
  DatasetIterator iterator = data.iterate();
  int64_t samples = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    if (epoch > 0) iterator.start(static_cast<uint64_t>(epoch));
    for (Element element; iterator.next(element);) samples += batched ? element[0].shape()[0] : 1;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const PipelineReport report = iterator.report();
  const double rate = static_cast<double>(samples) / std::max(seconds, 1e-9);
  int64_t skipped = 0;
  for (const StageReport& stage : report.stages) skipped += stage.skipped;
  if (samples == 0 && skipped == 0)
    throw DataError("[data] " + options.source +
                    ": expected samples, received none; is it the right file?");
  const std::string limit = limiting_stage(report);
  if (!options.html.empty()) {
    page.samples = samples;
    page.seconds = seconds;
    page.rate = rate;
    page.limited_by = limit;
    page.report = report;
    write_file_atomically(options.html, to_html(page));
  }
  if (options.json) {
    const Json json = Json::object()
                          .set("source", options.source)
                          .set("samples", samples)
                          .set("skipped", skipped)
                          .set("seconds", seconds)
                          .set("samples_per_s", rate)
                          .set("threads", report.threads)
                          .set("limited_by", limit)
                          .set("budget_bytes", report.ledger.budget)
                          .set("minimum_bytes", report.ledger.floor)
                          .set("peak_bytes", report.ledger.payload_peak)
                          .set("stages", to_json(report));
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  std::fprintf(human_stream(), "%s%lld samples in %.2f s: %.0f a second%s%s%s\n",
               report.text().c_str(), static_cast<long long>(samples), seconds, rate,
               skipped == 0 ? "" : ("; skipped " + std::to_string(skipped)).c_str(),
               limit.empty() ? "" : "; limited by ", limit.c_str());
  return 0;
}

}  // namespace pl

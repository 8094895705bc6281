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
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_sources.h"

namespace pl {
namespace {

Dataset open_dataset(const DataOptions& options) {
  const std::string& source = options.source;
  if (is_image_folder(source)) {
    if (options.input.rank() != 3 || options.input[2] != 3)
      throw UserError("[options] --input: expected HxWx3 for images, received " +
                      options.input.text());
    return image_dataset_from_directory(source, {.batch_size = 0,
                                                 .image_size = {options.input[0], options.input[1]},
                                                 .seed = options.seed});
  }
  if (source.find(".tfrecord") != std::string::npos) return tfrecord_dataset(list_files(source));
  if (source.ends_with(".txt")) return text_line_dataset(list_files(source));
  if (source == "synthetic")
    return synthetic_dataset({.x = {Dtype::uint8, options.input},
                              .classes = 10,
                              .samples = 10'000,
                              .seed = options.seed});
  if (source.ends_with(".npy")) return npy_dataset(source).shuffle({.seed = options.seed});
  return source_dataset(std::move(open_source(source).train)).shuffle({.seed = options.seed});
}

Json to_json(const PipelineReport& report) {
  Json stages = Json::array();
  for (const StageReport& stage : report.stages)
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
                    .set("skipped", stage.skipped));
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
  Dataset data = open_dataset(options);
  // Records of unknown length cannot be stacked; they come one by one.
  const bool batched = data.element_spec().known();
  if (batched) data = data.batch(options.batch);
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
  std::fprintf(human_stream(), "%s%lld samples in %.2f s: %.0f a second%s%s\n",
               report.text().c_str(), static_cast<long long>(samples), seconds, rate,
               limit.empty() ? "" : "; limited by ", limit.c_str());
  return 0;
}

}  // namespace pl

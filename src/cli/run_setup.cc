#include "cli/run_setup.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

constexpr int64_t kDefaultSyntheticSteps = 100;
constexpr int64_t kLargestBatch = int64_t{1} << 31;

// Opens the data and checks that the model can eat them.
void open_data(const RunOptions& options, int64_t classes, RunSetup& setup) {
  const Shape& input = setup.network.input_shapes()[0];
  if (options.data == "synthetic") {
    setup.sample = {{options.dtype, input}, {Dtype::int32, Shape{}}, 1, true};
    setup.loop.resident_batch = true;
    setup.loop.shuffle = false;
    return;
  }
  setup.sources = open_source(options.data);
  const auto& fields = setup.sources.train->fields();
  if (setup.sources.test && (setup.sources.test->fields()[0].sample != fields[0].sample ||
                             setup.sources.test->fields()[1].sample != fields[1].sample))
    throw DataError("[data] " + options.data +
                    ": expected training and test samples of one shape and dtype");
  setup.sample = {fields[0].sample, fields[1].sample, 1, false};
  // Images as bytes are brought to [0, 1], as every Keras example does.
  if (fields[0].sample.dtype == Dtype::uint8) setup.sample.x_scale = 1.0 / 255;
  // A flat model takes images, and an image model takes (H, W) as (H, W, 1): the bytes are the
  // same.
  if (fields[0].sample.shape != input && fields[0].sample.elements() == input.elements())
    setup.sample.x.shape = input;
  for (const Source* source : {setup.sources.train.get(), setup.sources.test.get()}) {
    if (!source) continue;
    const auto& range = source->fields()[1].range;
    if (range && (range->low < 0 || range->high >= classes))
      throw DataError("[data] " + source->name() + ": expected labels from 0 to " +
                      std::to_string(classes - 1) + ", received " + std::to_string(range->low) +
                      " to " + std::to_string(range->high));
  }
}

struct Candidate {
  const RunSetup& setup;
  Bytes source_bytes = 0;

  SessionPlan plan(int64_t batch) const {
    LoopOptions loop = setup.loop;
    loop.batch = batch;
    const int64_t train = setup.sources.train ? setup.sources.train->size() : batch;
    const int64_t test = setup.sources.test ? setup.sources.test->size() : 0;
    return plan_session(setup.network, setup.compiled, *setup.backend,
                        signatures_for(loop, train, test), setup.sample,
                        source_bytes + loop_bytes(loop));
  }
};

struct Fit {
  int64_t batch = 0;  // 0: not even one sample fits
  Bytes process = 0;
  double ms = 0;
};

// The largest batch whose plan is within the budget. Bytes grow nearly linearly with the batch, so
// the bracket is narrowed by interpolation and needs few plans.
Fit largest_batch(const Candidate& candidate, Bytes budget, int64_t most) {
  Fit best;
  auto tries = [&](int64_t batch) -> std::optional<Bytes> {
    try {
      const SessionPlan plan = candidate.plan(batch);
      if (plan.process() <= budget && batch > best.batch)
        best = {batch, plan.process(), plan.prepared.front().plan.ms};
      return plan.process();
    } catch (const UserError&) {
      return std::nullopt;  // a shape too large to exist
    }
  };
  int64_t low = 1, high = most + 1;  // low fits; high does not
  auto low_bytes = tries(1);
  if (!low_bytes || *low_bytes > budget) return best;
  double slope = 0;
  for (int round = 0; round < 64 && high - low > 1; ++round) {
    int64_t guess =
        slope > 0 ? low + static_cast<int64_t>(static_cast<double>(budget - *low_bytes) / slope)
                  : low * 2;
    if (round % 4 == 3) guess = low + (high - low) / 2;  // in case the curve is not a line
    guess = std::clamp(guess, low + 1, high - 1);
    const auto bytes = tries(guess);
    if (bytes) slope = static_cast<double>(*bytes - *low_bytes) / static_cast<double>(guess - low);
    if (bytes && *bytes <= budget) {
      low = guess;
      low_bytes = bytes;
      // Next time look just above: most often that is the end.
      if (slope > 0 && static_cast<double>(budget - *bytes) < slope) {
        const auto above = high - low > 1 ? tries(low + 1) : std::nullopt;
        if (!above || *above > budget) break;
        low += 1;
        low_bytes = above;
      }
    } else {
      high = guess;
    }
  }
  return best;
}

void judge(const RunOptions& options, const Candidate& candidate, bool want_max_batch,
           RunSetup& setup) {
  PlanReport& report = setup.report;
  const auto max_batch = report.max_batch;
  report = describe(setup.plan);
  report.max_batch = max_batch;
  report.model = options.model;
  report.optimizer = setup.compiled.optimizer->name();
  report.dtype = options.dtype;
  report.batch = setup.loop.batch;
  report.threads = setup.backend->threads();
  report.budget = options.memory;
  if (!options.memory) return;
  report.fits = report.process <= *options.memory;
  const int64_t most = setup.sources.train ? setup.sources.train->size() : kLargestBatch;
  if (report.fits && (!want_max_batch || report.max_batch)) return;
  const Fit fit = largest_batch(candidate, *options.memory,
                                report.fits ? most : std::min(most, setup.loop.batch - 1));
  report.max_batch = fit.batch;
  if (report.fits) return;
  if (fit.batch > 0)
    report.remedies.push_back({"--batch " + std::to_string(fit.batch), fit.process, fit.ms});
  report.remedies.push_back(
      {"--memory " + std::to_string(report.process), report.process, report.step_ms});
}

}  // namespace

RunSetup set_up_run(const RunOptions& options, bool want_max_batch) {
  RunSetup setup;
  const BuiltinModel& model = find_builtin(options.model);
  setup.network = model.build(options.input.value_or(model.input), model.classes);
  setup.compiled.optimizer = optimizer_from_name(options.optimizer);
  if (options.learning_rate) setup.compiled.optimizer->learning_rate = *options.learning_rate;
  setup.compiled.loss = loss_from_name("sparse_categorical_crossentropy");
  setup.compiled.metrics = {"accuracy"};
  setup.compiled.dtype = options.dtype;
  setup.loop = {.batch = options.batch,
                .epochs = options.epochs,
                .steps = options.steps,
                .shuffle = options.shuffle,
                .seed = options.seed,
                .learning_rate = setup.compiled.optimizer->learning_rate};
  open_data(options, model.classes, setup);
  setup.backend = std::make_unique<CpuBackend>(options.threads);
  Candidate candidate{setup, 0};
  for (const Source* source : {setup.sources.train.get(), setup.sources.test.get()})
    if (source) candidate.source_bytes += source->resident_bytes();
  const int64_t most = setup.sources.train ? setup.sources.train->size() : kLargestBatch;
  if (options.batch_max) {
    const Bytes budget = options.memory.value_or(host_room().least());
    const Fit fit = largest_batch(candidate, budget, most);
    setup.loop.batch = std::max<int64_t>(fit.batch, 1);
    setup.report.max_batch = fit.batch;
  }
  setup.loop.batch = std::min(setup.loop.batch, most);
  setup.plan = candidate.plan(setup.loop.batch);
  if (options.data == "synthetic") {
    setup.loop.steps_per_epoch = options.steps.value_or(kDefaultSyntheticSteps);
    setup.sources.train = synthetic_source({.x = setup.sample.x,
                                            .y = Shape{},
                                            .classes = model.classes,
                                            .samples = setup.loop.batch,
                                            .seed = options.seed});
  }
  judge(options, candidate, want_max_batch, setup);
  return setup;
}

}  // namespace pl

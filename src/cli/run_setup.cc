#include "cli/run_setup.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_library.h"
#include "base/error.h"
#include "base/processor.h"
#include "cli/costs.h"
#include "cli/data_source.h"
#include "data/cifar.h"
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"
#include "execute/call_file.h"
#include "train/batch_search.h"
#include "train/checkpoint_store.h"
#include "train/samples.h"

namespace pl {
namespace {

constexpr int64_t kDefaultSyntheticSteps = 100;
constexpr int64_t kLargestBatch = (int64_t{1} << 31) - 1;  // oneDNN counts rows in 32 bits

// Folders of images, or shards of them.
Sources open_images(const RunOptions& options, const std::vector<std::string>& shards,
                    const Shape& input) {
  if (input.rank() != 3 || input[2] != 3)
    throw DataError("[data] " + options.data +
                    ": expected a model of colour images for a folder of them, received one that " +
                    "reads samples " + input.text() + "; --input takes another size");
  const int threads = options.threads > 0 ? options.threads : default_threads();
  const OnError on_error = options.skip_errors ? OnError::skip : OnError::stop;
  const ImageSize size{input[0], input[1]};
  Sources sources;
  if (shards.empty()) return image_sources(options.data, size, threads, on_error);
  sources.train = tar_image_source(shards, size, threads, on_error);
  return sources;
}

Sources open_files(const std::string& data, const Network& network, OnError on_error) {
  if (Sources cifar = cifar_sources(data, on_error); cifar.train) return cifar;
  if (!data.ends_with(".txt")) return open_source(data);
  if (network.vocabulary() == 0 || network.input_shapes()[0].rank() != 1)
    throw DataError("[data] " + data +
                    ": expected a model of tokens for text, such as gpt-tiny, received one that " +
                    "reads samples " + network.input_shapes()[0].text());
  return text_sources(data, network.input_shapes()[0][0], network.vocabulary());
}

// Whatever is read goes through an input pipeline.
Sources open_sources(const RunOptions& options, const Network& network) {
  const std::vector<std::string> shards = tar_shards(options.data);
  if (!shards.empty() || is_image_folder(options.data))
    return open_images(options, shards, network.input_shapes()[0]);
  const OnError on_error = options.skip_errors ? OnError::skip : OnError::stop;
  Sources sources = open_files(options.data, network, on_error);
  for (std::unique_ptr<Source>* source : {&sources.train, &sources.test})
    if (*source) *source = through_pipeline(std::move(*source), on_error);
  return sources;
}

// Opens the data and checks that the model can eat them.
void open_data(const RunOptions& options, RunSetup& setup) {
  const Shape& input = setup.network.input_shapes()[0];
  if (options.data == "synthetic") {
    setup.sample = wanted_sample(setup.network, setup.compiled);
    setup.sample.resident = true;
    setup.loop.resident_batch = true;
    setup.loop.shuffle = false;
    return;
  }
  setup.sources = open_sources(options, setup.network);
  const auto& fields = setup.sources.train->fields();
  if (setup.sources.test && (setup.sources.test->fields()[0].sample != fields[0].sample ||
                             setup.sources.test->fields()[1].sample != fields[1].sample))
    throw DataError("[data] " + options.data +
                    ": expected training and test samples of one shape and dtype");
  setup.sample = {{fields[0].sample}, {fields[1].sample}, 1, false};
  // Images as bytes are brought to [0, 1], as every Keras example does.
  if (fields[0].sample.dtype == Dtype::uint8 && setup.network.vocabulary() == 0)
    setup.sample.x_scale = 1.0 / 255;
  // A flat model takes images, and an image model takes (H, W) as (H, W, 1): the bytes are the
  // same.
  if (fields[0].sample.shape != input && fields[0].sample.elements() == input.elements())
    setup.sample.x[0].shape = input;
  for (Source* source : {setup.sources.train.get(), setup.sources.test.get()})
    if (source) {
      check_tokens(*source, setup.network);
      check_labels(*source, setup.network, setup.compiled);
    }
}

// Seconds of one core's work, which the plan need not wait for.
std::future<MadeWeights> begin_weights(const RunSetup& setup, uint64_t seed) {
  VariableLayout layout = layout_variables(step_variables(setup.network, setup.compiled, true),
                                           setup.backend->alignment());
  return std::async(std::launch::async, [layout = std::move(layout), network = setup.network,
                                         seed] { return make_weights(layout, network, seed); });
}

Compiled compiled_for(const RunOptions& options, const BuiltinModel& model) {
  Compiled compiled;
  compiled.optimizer = optimizer_from_name(options.optimizer);
  if (options.learning_rate) compiled.optimizer->learning_rate = *options.learning_rate;
  compiled.loss = loss_from_name("sparse_categorical_crossentropy");
  compiled.loss.from_logits = model.logits;
  compiled.metrics = {"accuracy"};
  compiled.dtype = options.dtype;
  compiled.remat = options.remat;
  compiled.optimizer = scaled_for(options.dtype, compiled.optimizer);
  return compiled;
}

LoopOptions loop_for(const RunOptions& options, const Compiled& compiled) {
  return {.batch = options.batch,
          .epochs = options.epochs,
          .steps = options.steps,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .accumulate = accumulation_of(compiled)};
}

std::unique_ptr<Backend> open_backend(const RunOptions& options) {
  if (options.cuda) return open_cuda(*options.cuda, {.deterministic = options.deterministic});
  return std::make_unique<CpuBackend>(options.threads);
}

// A file's figures are of the mode that it was written in.
CallFile calls_for(RunOptions& options) {
  CallFile calls = read_calls(options.calls);
  const auto words = [](bool on) { return std::string(on ? "on" : "off"); };
  if (options.words.contains("--deterministic") && calls.deterministic != options.deterministic)
    throw UserError("[options] --deterministic: expected " + words(calls.deterministic) +
                    ", as the device was asked about in " + options.calls + ", received " +
                    words(options.deterministic) +
                    "; leave it out, or write a file with that mode on a machine with the device");
  options.deterministic = calls.deterministic;
  return calls;
}

void keep_known_calls(const std::string& path, bool deterministic, const Backend& backend,
                      const PlanMemory& memory) {
  write_calls(path, {.machine = backend.machine(),
                     .numerics = backend.numerics(),
                     .deterministic = deterministic,
                     .held = *memory.device_held,
                     .alignment = backend.alignment(),
                     .granule = backend.granule(),
                     .calls = memory.book.known_calls()});
}

struct BatchPlanner {
  const RunSetup& setup;
  Bytes source_bytes = 0;

  SessionPlan plan(int64_t batch, const PlanOptions& options) const {
    LoopOptions loop = setup.loop;
    loop.batch = batch;
    const int64_t train = setup.sources.train ? setup.sources.train->size() : batch;
    const int64_t test = setup.sources.test ? setup.sources.test->size() : 0;
    return plan_session(setup.network, setup.compiled, *setup.backend,
                        signatures_for(loop, train, test), setup.sample,
                        source_bytes + loop_bytes(loop), nullptr, options);
  }
};

// What writing them takes; answers what a copy of the variables would.
Bytes bill_checkpoints(RunSetup& setup, BatchPlanner& planner) {
  const VariableLayout layout = layout_variables(
      step_variables(setup.network, setup.compiled, true), setup.backend->alignment());
  setup.report.callbacks = checkpoint_bytes(layout.entries.size());
  planner.source_bytes += setup.report.callbacks;
  return snapshot_bytes(layout.bytes);
}

// Under ulimit -v or -d threads, libraries and planning have taken address space since --memory max
// was read. Lowers the budget, and plans again, until what is still to be taken fits beside them;
// in the end it is the smallest plan's.
void keep_within_limit(const BatchPlanner& planner, PlanOptions& plan_options, RunSetup& setup) {
  constexpr Bytes kBeside = 16 * kMiB;  // kernels' code and objects, reservations' alignment
  while (setup.plan.process() <= *plan_options.budget) {
    const std::optional<Bytes> room = host_room().address_space;
    const Bytes needed = setup.plan.arena + kBeside, held = setup.plan.process();
    if (!room || needed <= *room) return;
    plan_options.budget = std::max<Bytes>(held - (needed - *room), 1);
    setup.plan = planner.plan(setup.loop.batch, plan_options);
    plan_options.budget = std::max(*plan_options.budget, setup.plan.process());
    if (setup.plan.process() >= held) return;
  }
}

void fill_report(const RunOptions& options, const PlanFor& plan, const PlanOptions& plan_options,
                 int64_t most, Purpose purpose, RunSetup& setup) {
  PlanReport& report = setup.report;
  const auto max_batch = report.max_batch;
  const Bytes callbacks = report.callbacks;
  report = describe(setup.plan);
  report.max_batch = max_batch;
  report.callbacks = callbacks;
  report.model = options.model;
  report.optimizer = setup.compiled.optimizer->name();
  report.dtype = options.dtype;
  report.remat = options.remat;
  report.batch = setup.loop.batch;
  report.threads = setup.backend->threads();
  report.device = options.device;
  report.deterministic = options.deterministic;
  report.budget = options.memory;
  for (const Source* source : {setup.sources.train.get(), setup.sources.test.get()})
    if (source) report.pipeline += source->resident_bytes();
  if (report.on_device) report.host_bill.pipeline = report.pipeline;
  std::optional<Bytes> system;
  if (purpose == Purpose::train) system = system_limit(setup.backend.get());
  judge(report, plan, plan_options, most, purpose == Purpose::plan, system);
  if (options.curve) report.curve = batch_curve(report, plan, plan_options, most);
  report.with_frontier = options.frontier;
  report.costs = setup.plan.memory->book.costs().hash();
  report.checkpoint_every = options.checkpoint_every;
}

}  // namespace

RunSetup set_up_run(const RunOptions& given, Purpose purpose) {
  RunOptions options = given;
  RunSetup setup;
  const BuiltinModel& model = find_builtin(options.model);
  setup.network = model.build(options.input.value_or(model.input), model.classes);
  setup.compiled = compiled_for(options, model);
  setup.loop = loop_for(options, setup.compiled);
  open_data(options, setup);
  const bool described =
      purpose == Purpose::plan && options.cuda && !options.calls.empty() && cuda_devices() == 0;
  CallFile calls;
  if (described) calls = calls_for(options);
  setup.backend = described ? described_device(calls) : open_backend(options);
  if (purpose == Purpose::train && options.cuda) setup.weights = begin_weights(setup, options.seed);
  if (options.memory_max && options.cuda) options.memory = system_limit(setup.backend.get());
  // Without AVX-512 the library's gemm packs operands on the heap. Blocks of that size go back to
  // the system at once, so that they do not pile up beside each other.
  if (setup.backend->narrow_simd()) mallopt(M_MMAP_THRESHOLD, 256 * 1024);
  setup.costs = described ? CostTable(*setup.backend) : load_costs(*setup.backend, options.memory);
  BatchPlanner planner{setup, CostTable::bytes()};
  for (const Source* source : {setup.sources.train.get(), setup.sources.test.get()})
    if (source) planner.source_bytes += source->resident_bytes();
  const Bytes snapshot = options.checkpoint_every > 0 ? bill_checkpoints(setup, planner) : 0;
  const PlanFor plan_for = [&](int64_t batch, const PlanOptions& other) {
    return planner.plan(batch, other);
  };
  Bytes host = 0;
  if (options.cuda && options.offload) host = host_room().for_device(options.host_memory);
  PlanOptions plan_options{
      .budget = options.memory,
      .host = host,
      .switches = {.recompute = options.recompute, .split = options.split},
      .all = purpose == Purpose::plan || options.frontier || (options.json && !options.cuda),
      .memory = std::make_shared<PlanMemory>(*setup.backend, setup.costs)};
  if (described) {
    plan_options.memory->device_held = calls.held;
    plan_options.memory->book.know(std::move(calls.calls), true);
  }
  const int64_t most = setup.sources.train ? setup.sources.train->size() : kLargestBatch;
  if (options.batch_max) {
    const Bytes budget = options.memory.value_or(options.cuda ? system_limit(setup.backend.get())
                                                              : host_room().least());
    const BatchFit fit = largest_batch(plan_for, plan_options, budget, most);
    setup.loop.batch = std::max<int64_t>(fit.batch, 1);
    setup.report.max_batch = fit.batch;
  }
  setup.loop.batch = std::min(setup.loop.batch, most);
  setup.plan = planner.plan(setup.loop.batch, plan_options);
  if (options.memory_max && !options.cuda) {
    keep_within_limit(planner, plan_options, setup);
    options.memory = plan_options.budget;
  }
  setup.source_bytes = planner.source_bytes + loop_bytes(setup.loop);
  if (purpose == Purpose::train && !setup.plan.complete &&
      setup.plan.process() > system_limit(setup.backend.get())) {
    plan_options.all = true;  // the message that follows names the smallest plan
    setup.plan = planner.plan(setup.loop.batch, plan_options);
  }
  if (!options.calls.empty() && options.cuda && !described)
    keep_known_calls(options.calls, options.deterministic, *setup.backend, *plan_options.memory);
  std::optional<Bytes> system;
  if (purpose == Purpose::train) system = system_limit(setup.backend.get());
  std::optional<Bytes> snapshot_room = system;
  if (setup.plan.on_device) {  // the host's then; weights that are made already are of the bill
    const bool made = setup.weights.valid() &&
                      setup.weights.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    snapshot_room = host_room().least() + (made ? setup.plan.layout.bytes : 0);
  }
  grant_snapshot(setup.plan, snapshot, options.memory, snapshot_room);
  if (!setup.sample.resident) grant_ahead(setup.plan, options.memory, system);
  // Before the synthetic source exists: its size is the batch, and other batches are asked about.
  fill_report(options, plan_for, plan_options, most, purpose, setup);
  if (options.data == "synthetic") {
    setup.loop.steps_per_epoch = options.steps.value_or(kDefaultSyntheticSteps);
    setup.sources.train = synthetic_source(
        synthetic_spec(setup.network, setup.compiled, setup.loop.batch, options.seed));
  }
  return setup;
}

}  // namespace pl

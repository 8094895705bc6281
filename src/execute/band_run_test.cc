// Steps of image networks in bands: losses, metrics and all variables are those of whole images.
#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/cpu_backend.h"
#include "execute/pool.h"
#include "model/layers.h"
#include "op/functions.h"
#include "plan/bands.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "tests/model_run.h"
#include "train/step_trace.h"

namespace pl::test::band_run_test {
namespace {

LayerRef conv(int64_t filters, Pair size, const char* padding = "same", Pair strides = 1) {
  return Conv2D(filters, size, {.strides = strides, .padding = padding, .activation = "relu"});
}
LayerRef head() { return Conv2D(5, 1, {.activation = "softmax"}); }

Network network_of(const std::string& name, int64_t height) {
  const Shape image{height, name == "unet" ? 8 : 5, 2};
  if (name == "same") return chain(image, {conv(4, 3), conv(3, 5), head()});
  if (name == "valid")
    return chain(image, {conv(4, Pair(3, 1), "valid"), conv(3, Pair(4, 2), "valid"), head()});
  if (name == "strided") return chain(image, {conv(4, 3, "same", 2), conv(3, 3), head()});
  if (name == "stride_three")
    return chain(image, {conv(4, 5, "same", 3), conv(3, Pair(2, 1), "valid", Pair(2, 1)), head()});
  if (name == "dilated")
    return chain(image, {Conv2D(3, 3, {.padding = "same", .dilation_rate = 2}), head()});
  if (name == "pooled") return chain(image, {conv(4, 3), MaxPooling2D(2), conv(3, 3), head()});
  if (name == "pooled_same")
    return chain(image, {Conv2D(4, 3, {.padding = "same", .activation = "tanh"}),
                         MaxPooling2D(3, {.strides = 2, .padding = "same"}), conv(3, 3), head()});
  if (name == "dropout")
    return chain(image, {conv(4, 3), Dropout(0.25), MaxPooling2D(2), Dropout(0.5), head()});
  if (name == "norm")
    return chain(image,
                 {conv(4, 3), LayerNormalization(), Dense(5, {.activation = "gelu"}), head()});
  if (name == "resized")
    return chain(image, {ZeroPadding2D(2), conv(4, 3, "valid"), AveragePooling2D(2), conv(3, 3),
                         UpSampling2D(2), UpSampling2D(Pair(2, 1), {.interpolation = "bilinear"}),
                         conv(3, 3), head()});
  if (name == "transposed")
    return chain(image, {conv(3, 3, "same", 2), Conv2DTranspose(3, 3, {.strides = 2}),
                         ReLU({.max_value = 0.1}),
                         Conv2DTranspose(2, 4, {.strides = 3, .padding = "same"}), head()});
  const Symbolic x = Input(image);
  if (name == "skip") {
    const Symbolic a = conv(4, 3)(x), b = conv(4, 3)(a);
    const Symbolic c = conv(3, 3)(Concatenate()({a, Add()({a, b})}));
    return Network({x}, {head()(c)});
  }
  // unet: two levels down and up again.
  const Symbolic a = conv(4, 3)(conv(3, 3)(x)), b = conv(5, 3)(MaxPooling2D(2)(a));
  const Symbolic c = conv(6, 3)(MaxPooling2D(2)(b));
  const Symbolic d = conv(4, 3)(Concatenate()({b, Conv2DTranspose(5, 2, {.strides = 2})(c)}));
  const Symbolic e = conv(3, 3)(Concatenate()({a, Conv2DTranspose(4, 2, {.strides = 2})(d)}));
  return Network({x}, {head()(e)});
}

struct Step {
  StepKind kind = StepKind::train;
  int64_t batch = 1;
  Dtype dtype = Dtype::float64;
  const char* optimizer = "sgd";
  const char* loss = "sparse_categorical_crossentropy";
  MetricList metrics = {};
};

Graph trace(const Network& network, const Step& step) {
  const Compiled compiled{optimizer_from_name(step.optimizer), loss_from_name(step.loss),
                          step.metrics, step.dtype};
  const Meta y = *target_meta(compiled.loss, network.output_shapes()[0], step.dtype);
  Graph graph = trace_step(network, compiled, {step.kind, step.batch},
                           {{{Dtype::uint8, network.input_shapes()[0]}}, {y}, 1.0 / 255, false});
  run_passes(graph);
  return graph;
}

Prepared prepare_bands(const Graph& graph, Backend& backend, int64_t count) {
  const ImageStep step = mark_images(graph);
  const auto bands = find_bands(step, count);
  if (!bands) throw UserError("no room for " + std::to_string(count) + " bands");
  return prepare_as_is(split_bands(step, *bands), backend);
}

void expect_equal_steps(const Graph& graph, int64_t batch, int64_t count, double tolerance) {
  CpuBackend backend(2);
  PlannedRun whole(prepare_as_is(graph, backend)), bands(prepare_bands(graph, backend, count));
  fill_model(whole);
  fill_model(bands);
  for (int64_t step = 1; step <= 3; ++step) {
    fill_batch(whole, batch, step);
    fill_batch(bands, batch, step);
    whole.step();
    if (step % 2)
      bands.step_poisoned();
    else
      bands.step();
    ASSERT_LE(distance(whole, bands), tolerance) << "step " << step;
  }
  EXPECT_EQ(bands.executor().used_bytes(), bands.plan().arena);
  EXPECT_LT(bands.plan().loops[0].arena - bands.plan().loops[0].persistent,
            whole.plan().arena - whole.plan().persistent);
}

struct Case {
  const char* name;
  int64_t height;
  std::vector<int64_t> counts;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name << c.height; }

class BandTraining : public ::testing::TestWithParam<Case> {};

TEST_P(BandTraining, IsThatOfWholeImages) {
  const Case& c = GetParam();
  const Graph graph = trace(network_of(c.name, c.height), {.optimizer = "adam"});
  for (int64_t count : c.counts) {
    SCOPED_TRACE(std::to_string(count) + " bands");
    expect_equal_steps(graph, 1, count, 1e-10);
  }
}

const Case kCases[] = {
    {"same", 29, {2, 3, 5}},        {"same", 16, {2}},          {"valid", 31, {2, 3, 5}},
    {"strided", 33, {2, 3, 5}},     {"strided", 48, {2, 3, 5}}, {"stride_three", 97, {2, 3, 5}},
    {"dilated", 26, {2, 3, 5}},     {"pooled", 37, {2, 3, 5}},  {"pooled", 36, {3}},
    {"pooled_same", 37, {2, 3, 5}}, {"dropout", 23, {2, 3}},    {"norm", 14, {2, 3, 5}},
    {"skip", 30, {2, 3, 5}},        {"unet", 128, {2, 3, 5}},   {"resized", 47, {2, 3}},
    {"transposed", 44, {2, 3, 5}},
};
INSTANTIATE_TEST_SUITE_P(Networks, BandTraining, ::testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(info.param.name) + "_" + std::to_string(info.param.height);
});

TEST(BandRun, OfSeveralSamplesTakesEachInTurn) {
  const Graph graph = trace(network_of("dropout", 23), {.batch = 3});
  expect_equal_steps(graph, 3, 3, 1e-10);
}

TEST(BandRun, InFloat32IsCloseToWholeImages) {
  for (const char* name : {"pooled", "skip"}) {
    const Graph graph = trace(network_of(name, 37), {.dtype = Dtype::float32});
    expect_equal_steps(graph, 1, 3, 1e-4);
  }
}

TEST(BandRun, OfOtherLosses) {
  for (const char* loss : {"mean_squared_error", "categorical_crossentropy"})
    expect_equal_steps(trace(network_of("pooled", 37), {.loss = loss}), 1, 3, 1e-10);
}

TEST(BandRun, EvaluatesWholeImages) {
  const Network network = network_of("pooled", 37);
  expect_equal_steps(trace(network, {.kind = StepKind::evaluate, .batch = 2}), 2, 3, 1e-12);
  // Accuracies are float32, whatever the model is.
  expect_equal_steps(
      trace(network, {.kind = StepKind::evaluate, .batch = 2, .metrics = {"accuracy"}}), 2, 3,
      1e-6);
}

// Predictions fill up band by band, bit for bit.
TEST(BandRun, PredictsWholeImages) {
  CpuBackend backend(2);
  for (const char* name : {"valid", "pooled", "unet"})
    for (int64_t count : {2, 3}) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(count) + " bands");
      const Graph graph = trace(network_of(name, 96), {.kind = StepKind::predict, .batch = 2});
      PlannedRun whole(prepare_as_is(graph, backend)), bands(prepare_bands(graph, backend, count));
      fill_model(whole);
      fill_model(bands);
      fill_batch(whole, 2, 1);
      fill_batch(bands, 2, 1);
      whole.step();
      bands.step_poisoned();
      EXPECT_EQ(difference(graph, results(whole), results(bands)), "");
    }
}

// Budgets from the whole step down to the least: every plan is what the pool said, fits, computes
// the step, and is never faster with less memory.
TEST(BandPool, HoldsWhatItPromises) {
  CpuBackend backend(1);
  KernelBook book(backend);
  SearchMemo memo;
  const Graph graph = trace(network_of("unet", 96), {});
  const VariableLayout layout = layout_variables(graph.variables, backend.alignment());
  const Pool pool = make_pool(graph, book, memo, layout, {});
  EXPECT_EQ(pool.band_refusal, "");
  PlannedRun whole(prepare_as_is(graph, backend));
  fill_model(whole);
  fill_batch(whole, 1, 1);
  whole.step();
  Bytes least = pool.entries.front().arena, least_whole = least;
  std::set<int64_t> counts;
  for (const PoolEntry& entry : pool.entries) {
    Prepared prepared = build(graph, entry, book, layout);
    ASSERT_EQ(prepared.plan.arena, entry.arena);
    EXPECT_LE(pool.of(entry).floor, entry.arena);
    EXPECT_EQ(entry.split, std::max<int64_t>(1, entry.bands));
    least = std::min(least, entry.arena);
    if (entry.bands == 0) least_whole = std::min(least_whole, entry.arena);
    if (!counts.insert(entry.bands).second) continue;
    prepared.kernels = book.kernels(prepared.graph);
    PlannedRun run(std::move(prepared));
    fill_model(run);
    fill_batch(run, 1, 1);
    run.step_poisoned();
    EXPECT_LE(distance(whole, run), 1e-10) << entry.bands << " bands";
    EXPECT_EQ(run.executor().used_bytes(), entry.arena);
  }
  EXPECT_GE(counts.size(), 3u);
  EXPECT_LT(least, least_whole * 3 / 4);
  double last = 1e300;
  for (int i = 0; i <= 40; ++i) {
    const Bytes budget = least + (pool.entries.front().arena - least) * i / 40;
    double best = 1e300;
    for (const PoolEntry& entry : pool.entries)
      if (entry.arena <= budget) best = std::min(best, entry.ms);
    EXPECT_LE(best, last);
    last = best;
  }
  EXPECT_EQ(last, pool.entries.front().ms);
}

TEST(BandPool, TakesWhatWasAskedFor) {
  CpuBackend backend(1);
  KernelBook book(backend);
  SearchMemo memo;
  const Graph graph = trace(network_of("pooled", 37), {.batch = 2});
  const VariableLayout layout = layout_variables(graph.variables, backend.alignment());
  auto pool_of = [&](int64_t split) {
    return make_pool(graph, book, memo, layout, {.split = split});
  };
  EXPECT_EQ(pool_of(2).entries.front().bands, 0);
  EXPECT_EQ(pool_of(6).entries.front().bands, 3);
  EXPECT_EQ(pool_of(6).entries.front().split, 6);
  for (const PoolEntry& entry : pool_of(1).entries) EXPECT_EQ(entry.split, 1);
  EXPECT_NE(error_of<UserError>([&] { pool_of(3); }).find("a multiple of it"), std::string::npos);
  EXPECT_NE(error_of<UserError>([&] { pool_of(80); }).find("fewer bands"), std::string::npos);
}

}  // namespace
}  // namespace pl::test::band_run_test

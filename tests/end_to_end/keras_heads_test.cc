// Losses with their gradients, metrics over batches, and fits with weights and several ends,
// against Keras in float64. tests/golden/keras_heads.py made the answers; numbers come from the
// same counter hash.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "tests/keras_answers.h"
#include "tests/places.h"
#include "trace/gradient.h"

namespace pl::test::keras_heads_test {
namespace {

using ::pl::test::hashed_integers;
using ::pl::test::hashed_reals;

constexpr uint32_t kY = 1, kP = 2, kW = 3;

const Json& answers() {
  static const Json json = parse_json(
      ::pl::test::read_bytes(::pl::test::golden("keras_heads.json")), "keras_heads.json");
  return json;
}

Shape shape_of(const Json& list) {
  std::vector<Dim> dims;
  for (const Json& dim : list.as_array("shape")) dims.push_back(dim.as_integer("dim"));
  return Shape(std::move(dims));
}

std::vector<double> reals_of(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list.as_array("values")) values.push_back(value.as_real("value"));
  return values;
}

Tensor from_integers(const Tensor& whole, Dtype dtype, double factor, double offset) {
  return scale(cast(whole, dtype), factor, offset);
}

// A tensor for predictions of `shape`, as `make` in the script has it.
Tensor make(const std::string& kind, uint32_t salt, const Shape& shape, int64_t classes,
            Dtype dtype) {
  if (kind == "real") return hashed_reals(salt, {dtype, shape}, 1);
  if (kind == "unit") return hashed_reals(salt, {dtype, shape}, -1, 0.5f);
  if (kind == "positive") return hashed_reals(salt, {dtype, shape}, 0, 1.25f);
  if (kind == "binary") return from_integers(hashed_integers(salt, shape, 2), dtype, 1, 0);
  if (kind == "sign") return from_integers(hashed_integers(salt, shape, 2), dtype, 2, -1);
  if (kind == "spelling") {  // of up to 3 of the classes but 0, then zeros
    const Tensor labels = hashed_integers(salt, {shape[0], 3}, static_cast<uint32_t>(classes - 1));
    const Tensor last = hashed_integers(salt + 1, {shape[0]}, 3);
    for (Dim i = 0; i < 3 * shape[0]; ++i) {
      int32_t& label = labels.data_as<int32_t>()[i];
      label = i % 3 <= last.data_as<int32_t>()[i / 3] ? label + 1 : 0;
    }
    return labels;
  }
  std::vector<Dim> dims = shape.dims();
  dims.pop_back();
  const Tensor labels =
      hashed_integers(salt, Shape(std::move(dims)), static_cast<uint32_t>(classes));
  return kind == "labels" ? labels : one_hot(labels, classes, dtype);
}

Tensor make_weights(uint32_t salt, Dim rows, Dtype dtype) {
  return hashed_reals(salt, {dtype, {rows}}, -1, 0.75f);
}

double number(const Tensor& x, int64_t i) {
  return x.dtype() == Dtype::float64 ? x.data_as<double>()[i]
                                     : static_cast<double>(x.data_as<float>()[i]);
}

// |a - b| <= tolerance * max(|b|, rms(b))
void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double squares = 0;
  for (double value : b) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(b.size()));
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * std::max(std::fabs(b[i]), rms)) << what << " " << i;
}

std::vector<double> numbers(const Tensor& x) {
  std::vector<double> list;
  for (int64_t i = 0; i < x.meta().elements(); ++i) list.push_back(number(x, i));
  return list;
}

Loss loss_of(const Json& c) {
  Loss loss = loss_from_name(c.at("name", "case").as_string("name"));
  for (const auto& [name, value] : c.at("options", "case").as_object("options")) {
    if (name == "from_logits") {
      loss.from_logits = value.as_bool("from_logits");
    } else if (name == "apply_class_balancing") {
      loss.options.set(name, int64_t{value.as_bool(name)});
    } else if (name == "ignore_class" || (name == "axis" && !value.is_array())) {
      loss.options.set(name, value.as_integer(name));
    } else if (name == "axis") {
      std::vector<int64_t> axes;
      for (const Json& axis : value.as_array("axis")) axes.push_back(axis.as_integer("axis"));
      loss.options.set(name, std::move(axes));
    } else {
      loss.options.set(name, value.as_real(name));
    }
  }
  check_loss(loss);
  return loss;
}

// The gradient of the reduced loss by the predictions, as a traced and planned step has it.
std::vector<double> gradient_of(const Loss& loss, const Tensor& y, const Tensor& p,
                                const Tensor& weight) {
  Recorder recorder;
  RecorderScope scope(recorder);
  Tensors values{y, p}, inputs;
  if (weight.defined()) values.push_back(weight);
  for (const Tensor& value : values) inputs.push_back(recorder.input("in", value.meta(), true));
  const Tensor total = loss(inputs[0], inputs[1], weight.defined() ? inputs[2] : Tensor());
  recorder.keep(total, "loss");
  const Tensor gradient = gradients(total, {inputs[1]}, fill(Shape{}, 1, total.dtype()))[0];
  recorder.keep(gradient, "gradient");
  CpuBackend backend(1);
  PlannedRun run(recorder.take(), backend);
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(run.input(i), values[i].data(), static_cast<size_t>(values[i].meta().bytes()));
  run.step_poisoned();
  Tensor result(p.meta());
  std::memcpy(result.data(), run.kept(1), static_cast<size_t>(p.meta().bytes()));
  return numbers(result);
}

void check_case(const Json& c, Dtype dtype, double tolerance) {
  CpuBackend backend(1);
  const BackendScope eager(backend);
  Loss loss = loss_of(c);
  const Shape shape = shape_of(c.at("shape", "case"));
  const int64_t classes = c.at("classes", "case").as_integer("classes");
  const Tensor y = make(c.at("y", "case").as_string("y"), kY, shape, classes, dtype);
  const Tensor p = make(c.at("p", "case").as_string("p"), kP, shape, classes, dtype);
  const Tensor w = make_weights(kW, shape[0], dtype);
  const std::string what = loss.name + " " + loss.options.print() + " " + shape.text() + " " +
                           std::string(name_of(dtype)) + " ";
  loss.reduction = "none";
  expect_close(numbers(loss(y, p)), reals_of(c.at("none", "case")), tolerance, what + "none");
  for (const char* reduction : {"sum_over_batch_size", "sum", "mean_with_sample_weight"}) {
    loss.reduction = reduction;
    const std::vector<double> theirs = reals_of(c.at(reduction, "case"));
    expect_close({number(loss(y, p), 0)}, {theirs[0]}, tolerance, what + reduction);
    expect_close({number(loss(y, p, w), 0)}, {theirs[1]}, tolerance,
                 what + reduction + " weighted");
  }
  loss.reduction = "mean";
  expect_close(gradient_of(loss, y, p, {}), reals_of(c.at("gradient", "case")), tolerance,
               what + "gradient");
  expect_close(gradient_of(loss, y, p, w), reals_of(c.at("weighted_gradient", "case")), tolerance,
               what + "weighted gradient");
}

TEST(KerasHeads, LossesAndTheirGradientsInFloat64) {
  // Keras computes CTC in float32 whatever the dtype is; the op has float64 answers of its own.
  for (const Json& c : answers().at("losses", "answers").as_array("losses"))
    check_case(c, Dtype::float64, c.at("name", "case").as_string("name") == "ctc" ? 5e-6 : 1e-10);
}

TEST(KerasHeads, LossesAndTheirGradientsInFloat32) {
  for (const Json& c : answers().at("losses", "answers").as_array("losses"))
    check_case(c, Dtype::float32, 1e-5);
}

Metric metric_of(const std::string& key) {
  using namespace metrics;
  if (key == "top_3") return TopKCategoricalAccuracy(3);
  if (key == "sparse_top_2") return SparseTopKCategoricalAccuracy(2);
  if (key == "r2_weighted")
    return R2Score({.class_aggregation = "variance_weighted_average", .num_regressors = 2});
  if (key == "precision_class_1") return Precision({.threshold = 0.375, .class_id = 1});
  if (key == "recall_class_2") return Recall({.class_id = 2});
  if (key == "precision_top_2") return Precision({.top_k = 2});
  if (key == "recall_top_3") return Recall({.threshold = 0.5, .top_k = 3});
  if (key == "recall_top_2_class_1") return Recall({.top_k = 2, .class_id = 1});
  if (key == "equal") return Accuracy();
  if (key == "io_u") return IoU(4, {0, 2});
  if (key == "mean_io_u") return MeanIoU(4, {.ignore_class = 1});
  if (key == "auc_pr") return AUC({.curve = "PR"});
  if (key == "auc_pr_minoring") return AUC({.curve = "PR", .summation_method = "minoring"});
  if (key == "auc_prgain")
    return AUC({.num_thresholds = 23, .curve = "PRGAIN", .summation_method = "majoring"});
  if (key == "auc_multi_label") return AUC({.num_thresholds = 11, .multi_label = true});
  if (key == "auc_logits") return AUC({.num_thresholds = 50, .from_logits = true});
  if (key == "sensitivity_at_specificity") return SensitivityAtSpecificity(0.5);
  if (key == "specificity_at_sensitivity")
    return SpecificityAtSensitivity(0.5, {.num_thresholds = 1});
  if (key == "precision_at_recall") return PrecisionAtRecall(0.25);
  if (key == "recall_at_precision") return RecallAtPrecision(0.5);
  if (key == "f1_macro") return F1Score({.average = "macro"});
  if (key == "f1_micro") return F1Score({.average = "micro", .threshold = 0.5});
  if (key == "fbeta_weighted") return FBetaScore({.average = "weighted", .beta = 2});
  if (key == "one_hot_mean_io_u") return OneHotMeanIoU(4);
  if (key == "one_hot_io_u") return OneHotIoU(4, {0, 2});
  return Metric(key);
}

TEST(KerasHeads, MetricsOverThreeBatches) {
  CpuBackend backend(1);
  const BackendScope eager(backend);
  const int64_t batches[] = {5, 5, 3};
  for (const Json& c : answers().at("metrics", "answers").as_array("metrics")) {
    const std::string key = c.at("key", "case").as_string("key");
    const Shape sample = shape_of(c.at("shape", "case"));
    for (const auto& [name, theirs] : c.as_object("case")) {
      if (name != "plain" && name != "weighted") continue;
      // What is counted is exact in float32 too; thresholds lie between float32 numbers.
      for (Dtype dtype : {Dtype::float64, Dtype::float32}) {
        MetricState state(metric_of(key));
        for (uint32_t b = 0; b < 3; ++b) {
          const Shape shape = sample.with_front(batches[b]);
          const Tensor y =
              make(c.at("y", "c").as_string("y"), kY + 10 * b, shape, sample.back(), dtype);
          const Tensor p =
              make(c.at("p", "c").as_string("p"), kP + 10 * b, shape, sample.back(), dtype);
          const Tensor w =
              name == "weighted" ? make_weights(kW + 10 * b, batches[b], dtype) : Tensor();
          state.update_state(y, p, w);
        }
        // Keras divides the counts of an IoU in float32.
        const bool exact = dtype == Dtype::float64 && !key.ends_with("io_u");
        const double wanted = theirs.as_real(key), bar = exact ? 1e-10 : 1e-5;
        EXPECT_NEAR(state.result(), wanted, bar * std::max(1.0, std::fabs(wanted)))
            << key << " " << name << " " << name_of(dtype);
      }
    }
  }
}

void expect_history(const History& history, const Json& answer) {
  const auto& theirs = answer.at("history", "case").as_object("history");
  EXPECT_EQ(history.history.size(), theirs.size());
  for (const auto& [name, values] : theirs) {
    ASSERT_TRUE(history.history.contains(name)) << name;
    expect_close(history.history.at(name), reals_of(values), 1e-7, name);
  }
}

// As `set_weights` in the script.
void set_weights(Model& model, const Json& answer) {
  std::vector<std::string> sorted;
  for (const Json& path : answer.at("paths", "case").as_array("paths"))
    sorted.push_back(path.as_string("path"));
  Tensors values;
  for (const WeightInfo& weight : model.weights()) {
    const auto at = std::find(sorted.begin(), sorted.end(), weight.path) - sorted.begin();
    ASSERT_LT(static_cast<size_t>(at), sorted.size()) << weight.path;
    values.push_back(real(100 + static_cast<uint32_t>(at), weight.meta.shape, -1));
  }
  model.set_weights(values);
}

struct TwoEnds {
  Model model;
  Values x, y, named_x, named_y, weights;
};

TwoEnds two_ends(const Json& answer) {
  const Symbolic a = Input({3}, "a"), b = Input({2}, "b");
  const Symbolic h = Concatenate(-1, "both")(
      {Dense(4, {.activation = "tanh", .name = "trunk"})(a), Dense(3, {.name = "side"})(b)});
  Model model({a, b}, {Dense(1, {.name = "price"})(h),
                       Dense(3, {.activation = "softmax", .name = "kind"})(h)});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                 .loss = {{"price", "mse"}, {"kind", "sparse_categorical_crossentropy"}},
                 .loss_weights = {{"price", 0.5}, {"kind", 2.0}},
                 .metrics = {{"price", {"mae"}}, {"kind", {"accuracy"}}},
                 .weighted_metrics = {{"kind", {"accuracy"}}},
                 .dtype = Dtype::float64});
  set_weights(model, answer);
  const Tensor xa = real(1, {10, 3}, 0), xb = real(2, {10, 2}, 0), price = real(3, {10, 1}, 0),
               kind = integers(4, {10}, 3);
  const Meta weight{Dtype::float64, {10}};
  return {std::move(model),
          {xa, xb},
          {price, kind},
          {{"b", xb}, {"a", xa}},
          {{"kind", kind}, {"price", price}},
          {hashed_reals(5, weight, -1, 0.75f), hashed_reals(6, weight, -1, 0.75f)}};
}

const FitOptions kFit{.batch_size = 4, .epochs = 3, .verbose = 0, .shuffle = false, .threads = 1};

TEST(KerasHeads, TwoInputsAndTwoOutputs) {
  const Json& answer = answers().at("two_ends", "answers");
  TwoEnds ends = two_ends(answer);
  expect_history(ends.model.fit(ends.x, ends.y, kFit), answer);
  TwoEnds named = two_ends(answer);
  expect_history(named.model.fit(named.named_x, named.named_y, kFit), answer);
}

TEST(KerasHeads, TwoOutputsWithWeightsOfTheirOwn) {
  const Json& answer = answers().at("two_ends_weighted", "answers");
  for (int64_t split : {0, 2}) {
    TwoEnds ends = two_ends(answer);
    FitOptions options = kFit;
    options.sample_weight = ends.weights;
    options.split = split;
    expect_history(ends.model.fit(ends.x, ends.y, options), answer);
  }
}

TEST(KerasHeads, ClassWeights) {
  const Json& answer = answers().at("class_weight", "answers");
  const Symbolic x = Input({3});
  Model model(x, Dense(3, {.activation = "softmax", .name = "kind"})(x));
  model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .weighted_metrics = {"accuracy"},
                 .dtype = Dtype::float64});
  set_weights(model, answer);
  FitOptions options = kFit;
  options.class_weight = {{0, 0.5}, {2, 3.0}};
  options.validation_data = {real(7, {5, 3}, 0), integers(8, {5}, 3)};
  expect_history(model.fit(real(1, {10, 3}, 0), integers(4, {10}, 3), options), answer);
}

// Positions that Masking leaves out; also in parts of the batch, whose divisor is the batch's.
TEST(KerasHeads, MasksOfPredictions) {
  using losses::SparseCategoricalCrossentropy;
  struct Case {
    const char* name;
    Loss loss;
    bool weighted;
  };
  const Case cases[] = {
      {"masked", SparseCategoricalCrossentropy(), false},
      {"masked_weighted", SparseCategoricalCrossentropy(), true},
      {"masked_by_weights", SparseCategoricalCrossentropy({.reduction = "mean_with_sample_weight"}),
       true},
      {"masked_ignoring", SparseCategoricalCrossentropy({.ignore_class = 1}), false}};
  const Tensor x = real(1, {10, 4, 3}, 0), first = real(3, {10, 3}, 0);
  for (Dim i = 0; i < 120; ++i) {
    double& value = x.data_as<double>()[i];
    value *= hashed(2, i / 3) % 2;
    if (i / 3 % 4 == 0) value = first.data_as<double>()[i / 12 * 3 + i % 3];
  }
  const Json answers = parse_json(::pl::test::read_bytes(::pl::test::golden("keras_masks.json")),
                                  "keras_masks.json");
  for (const Case& c : cases)
    for (int64_t split : {0, 2}) {
      SCOPED_TRACE(std::string(c.name) + " in " + std::to_string(split));
      const Json& answer = answers.at(c.name, "answers");
      const Symbolic in = Input({4, 3});
      Model model(in, Dense(3, {.activation = "softmax", .name = "kind"})(Masking(0, "mask")(in)));
      model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                     .loss = c.loss,
                     .metrics = {"accuracy", "sparse_categorical_crossentropy"},
                     .weighted_metrics = {"accuracy"},
                     .dtype = Dtype::float64});
      set_weights(model, answer);
      FitOptions options = kFit;
      options.split = split;
      if (c.weighted) options.sample_weight = hashed_reals(5, {Dtype::float64, {10, 4}}, -1, 0.75f);
      expect_history(model.fit(x, integers(4, {10, 4}, 3), options), answer);
    }
}

}  // namespace
}  // namespace pl::test::keras_heads_test

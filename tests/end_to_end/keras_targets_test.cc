// What a loss, a metric and a train_step of the user's see of targets with and without a last
// dimension of 1, and the figures that follow, against Keras (tests/golden/keras_targets.py).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/data_files.h"
#include "tests/places.h"

namespace pl::test::keras_targets_test {
namespace {

constexpr Dim kBatch = 6;

std::vector<Dim> dims_of(const Json& list) {
  std::vector<Dim> dims;
  for (const Json& dim : list.as_array("dims")) dims.push_back(dim.as_integer("dim"));
  return dims;
}

struct Case {
  Shape x, y;  // of one sample
  int64_t units;
  bool flat;
  Dtype dtype;
  std::optional<Shape> weights;
  std::string loss;
  const Json* answers;

  std::string text() const {
    return x.text() + " to " + std::to_string(units) + (flat ? " flat" : "") + ", y " + y.text();
  }
};

std::vector<Case> cases() {
  static const Json json =
      parse_json(test::read_bytes(golden("keras_targets.json")), "keras_targets.json");
  std::vector<Case> list;
  for (const Json& each : json.as_array("cases")) {
    const Json& weights = each.at("weights", "case");
    list.push_back({Shape(dims_of(each.at("x", "case"))), Shape(dims_of(each.at("y", "case"))),
                    each.at("units", "case").as_integer("units"),
                    each.at("flat", "case").as_bool("flat"),
                    *dtype_from_name(each.at("dtype", "case").as_string("dtype")), std::nullopt,
                    each.at("loss", "case").as_string("loss"), &each});
    if (!weights.is_null()) list.back().weights = Shape(dims_of(weights));
  }
  return list;
}

Tensor wave(const Shape& shape, double phase) {
  Tensor x({Dtype::float32, shape});
  for (int64_t i = 0; i < shape.elements(); ++i)
    x.data_as<float>()[i] =
        static_cast<float>(std::sin(12.9898 * static_cast<double>(i + 1) + phase));
  return x;
}

Tensor numbers(const Shape& shape, Dtype dtype, const std::function<int64_t(int64_t)>& of) {
  Tensor x({Dtype::int32, shape});
  for (int64_t i = 0; i < shape.elements(); ++i)
    x.data_as<int32_t>()[i] = static_cast<int32_t>(of(i));
  return ops::cast(x, dtype);
}
Tensor targets_of(const Case& of) {
  const int64_t classes = std::max<int64_t>(of.units, 2);
  return numbers(of.y.with_front(kBatch), of.dtype,
                 [=](int64_t i) { return (i * 7 + 3 + i / 5) % classes; });
}

template <class M = Model>
M build(const Case& of) {
  const Symbolic x = Input(of.x);
  Symbolic out = Dense(of.units)(x);
  std::vector<Dim> positions = of.x.dims();
  positions.pop_back();
  if (of.flat) out = Reshape(positions)(out);
  M model(x, out);
  Tensors weights = model.get_weights();
  weights[0] = wave(weights[0].shape(), 0);
  model.set_weights(weights);
  return model;
}

using Seen = std::map<std::string, std::vector<Dim>>;

std::vector<Dim> sample_dims(const Tensor& x) { return x.shape().without_front().dims(); }

class OwnStep : public Model {
 public:
  using Model::Model;
  TensorLogs train_step(const StepData& data) override {
    seen["step"] = sample_dims(data.y());
    if (data.sample_weight().defined()) seen["step_weight"] = sample_dims(data.sample_weight());
    return Model::train_step(data);
  }
  Seen seen;
};

void expect_seen(const Case& of, const Seen& ours) {
  size_t count = 0;
  for (const auto& [name, dims] : of.answers->at("seen", "case").as_object("seen")) {
    ++count;
    const auto found = ours.find(name);
    ASSERT_NE(found, ours.end()) << of.text() << " " << name;
    EXPECT_EQ(found->second, dims_of(dims)) << of.text() << " " << name;
  }
  EXPECT_EQ(ours.size(), count) << of.text();
}

TEST(KerasTargets, FunctionsSeeWhatKerasGivesThem) {
  for (const Case& of : cases()) {
    OwnStep model = build<OwnStep>(of);
    Seen& seen = model.seen;
    auto loss = [&](const Tensor& y_true, const Tensor& y_pred) {
      seen["loss_true"] = sample_dims(y_true), seen["loss_pred"] = sample_dims(y_pred);
      return ops::mean(y_pred, -1);
    };
    auto metric = [&](const Tensor& y_true, const Tensor& y_pred) {
      seen["metric_true"] = sample_dims(y_true), seen["metric_pred"] = sample_dims(y_pred);
      // Integers of any width are int32 here.
      EXPECT_EQ(y_true.dtype(), is_floating(of.dtype) ? of.dtype : Dtype::int32) << of.text();
      return ops::mean(y_pred, -1);
    };
    model.compile({.optimizer = "sgd", .loss = loss, .metrics = {Metric("seen", metric)}});
    FitOptions options{.batch_size = kBatch, .verbose = 0, .threads = 1};
    if (of.weights) options.sample_weight = wave(of.weights->with_front(kBatch), 2);
    model.fit(wave(of.x.with_front(kBatch), 1), targets_of(of), options);
    expect_seen(of, seen);
  }
}

// Its figure shows which targets it got.
Tensor share(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor y = ops::cast(y_true, y_pred.dtype());
  return y.shape().rank() == y_pred.shape().rank() ? ops::mean(y * y_pred, -1) : ops::mean(y, -1);
}

void expect_figures(const Case& of, Model model) {
  Loss loss = loss_from_name(of.loss);
  loss.from_logits = of.loss != "mean_squared_error";
  MetricList metrics = {Metric("share", share)}, weighted;
  if (!of.flat) metrics.insert(metrics.begin(), Metric("accuracy"));
  if (of.weights) weighted = {Metric("accuracy")};
  model.compile(
      {.optimizer = "sgd", .loss = loss, .metrics = metrics, .weighted_metrics = weighted});
  EvaluateOptions options{.batch_size = kBatch, .threads = 1};
  if (of.weights)
    options.sample_weight = numbers(of.weights->with_front(kBatch), Dtype::float32,
                                    [](int64_t i) { return 1 + i % 3; });
  const Results ours = model.evaluate(wave(of.x.with_front(kBatch), 1), targets_of(of), options);
  for (const auto& [name, figure] : of.answers->at("figures", "case").as_object("figures")) {
    ASSERT_TRUE(ours.contains(name)) << of.text() << " " << name;
    const double wanted = figure.as_real(name);
    EXPECT_NEAR(ours.at(name), wanted, 1e-5 * std::max(std::abs(wanted), 0.1))
        << of.text() << " " << of.loss << " " << name;
  }
}

TEST(KerasTargets, FiguresAreKeras) {
  for (const Case& of : cases()) expect_figures(of, build(of));
}

TEST(KerasTargets, ValidationDataMayDifferByALastDimensionOfOne) {
  Sequential model(Shape{3}, {Dense(4)});
  model.compile({.optimizer = "sgd",
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const Tensor x = wave({8, 3}, 0);
  const Tensor y = numbers({8}, Dtype::int32, [](int64_t i) { return i % 4; });
  FitOptions options{.batch_size = 8, .verbose = 0, .threads = 1};
  options.validation_data = {x, ops::reshape(y, {8, 1})};
  const History history = model.fit(x, y, options);
  EXPECT_EQ(history.history.at("val_loss")[0],
            model.evaluate(x, y, {.batch_size = 8, .threads = 1}).at("loss"));
}

}  // namespace
}  // namespace pl::test::keras_targets_test

// Keras's dtype argument of layers, and what summary() says of dtypes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "op/cast.h"
#include "plimsoll.h"
#include "tests/patterns.h"
#include "train/step_trace.h"

namespace pl::policy_test {
namespace {

using test::pattern;
using test::same_bits;

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

// (hidden, head) with their policies, in a model of `model`.
Sequential two_layers(const std::string& hidden, const std::string& head, Policy model) {
  Sequential made(Shape{8}, {Dense(16, {.activation = "tanh", .dtype = hidden}),
                             Dense(4, {.activation = "softmax"}), Dense(3, {.dtype = head})});
  made.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse", .dtype = model});
  return made;
}

// What Keras does: inputs are cast to what a layer computes in, variables stay float32.
Tensor expected(const Tensors& w, const Tensor& x, Dtype hidden, Dtype middle, Dtype head) {
  auto layer = [](const Tensor& in, const Tensor& kernel, const Tensor& bias, Dtype dtype) {
    return matmul(cast(in, dtype), cast(kernel, dtype), {}, bias);
  };
  const Tensor h = tanh(layer(x, w[0], w[1], hidden));
  const Tensor m = softmax(layer(h, w[2], w[3], middle));
  return cast(layer(m, w[4], w[5], head), Dtype::float32);
}

TEST(LayerPolicy, CastsInputsAndLeavesVariables) {
  const Dtype narrow = Dtype::bfloat16, wide = Dtype::float32;
  const Tensor x = pattern({5, 8}, 1);
  struct Case {
    const char *hidden, *head;
    Policy model;
    Dtype dtypes[3];
  };
  const Case cases[] = {{"", "float32", kMixedBfloat16, {narrow, narrow, wide}},
                        {"float32", "", kMixedBfloat16, {wide, narrow, narrow}},
                        {"mixed_bfloat16", "", Policy(), {narrow, wide, wide}},
                        {"", "mixed_bfloat16", Policy(), {wide, wide, narrow}}};
  for (const Case& c : cases) {
    Sequential model = two_layers(c.hidden, c.head, c.model);
    for (const WeightInfo& weight : model.weights()) EXPECT_EQ(weight.meta.dtype, Dtype::float32);
    const Tensor got = model.predict(x, {.threads = 1});
    Runtime runtime({.memory = "16MiB", .threads = 1});
    EXPECT_TRUE(
        same_bits(got, expected(model.get_weights(), x, c.dtypes[0], c.dtypes[1], c.dtypes[2])))
        << c.hidden << "," << c.head;
    EXPECT_TRUE(same_bits(got, cast(model(x), Dtype::float32)));
  }
}

TEST(LayerPolicy, OfMembersIsThatOfLayers) {
  struct Subclass : Model {
    Tensor call(const Tensor& x, bool) override { return head(hidden(x)); }
    LayerRef hidden = Dense(16, {.activation = "tanh"});
    LayerRef head = Dense(3, {.dtype = "float32"});
  };
  const Tensor x = pattern({16, 8}, 1), y = pattern({16, 3}, 2);
  Subclass subclass;
  Sequential plain(Shape{8}, {Dense(16, {.activation = "tanh"}), Dense(3, {.dtype = "float32"})});
  const CompileOptions compile{.optimizer = SGD(), .loss = "mse", .dtype = kMixedBfloat16};
  subclass.compile(compile);
  plain.compile(compile);
  subclass.predict(x, {.threads = 1});
  plain.set_weights(subclass.get_weights());
  const FitOptions fit{.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1};
  EXPECT_EQ(subclass.fit(x, y, fit).history, plain.fit(x, y, fit).history);
  EXPECT_TRUE(same_bits(subclass.predict(x), plain.predict(x)));
}

TEST(LayerPolicy, TrainsInsideOfItsBill) {
  const Tensor x = pattern({64, 8}, 1), y = pattern({64, 3}, 2);
  Sequential model = two_layers("", "float32", kMixedBfloat16);
  const History history =
      model.fit(x, y, {.batch_size = 16, .epochs = 10, .verbose = 0, .threads = 1});
  EXPECT_EQ(history.planned_arena, history.used_arena);
  EXPECT_LT(history.history.at("loss").back(), history.history.at("loss").front());
}

TEST(LayerPolicy, EveryLayerTakesOne) {
  const LayerRef layer = MaxPooling2D().dtype("float32");
  EXPECT_EQ(layer->dtype, Policy(Dtype::float32));
  EXPECT_EQ(Dense(3)->dtype, std::nullopt);
}

TEST(LayerPolicy, MisuseIsNamed) {
  EXPECT_EQ(message([] { Dense(3, {.name = "head", .dtype = "half"}); }),
            "[build] head dtype: expected float32, float64, mixed_bfloat16 or mixed_float16, "
            "received 'half'");
  EXPECT_EQ(message([] {
              Sequential model(Shape{8}, {Dense(3, {.name = "head", .dtype = "float64"})});
              model.compile({.loss = "mse"});
              model.plan();
            }),
            "[compile] head dtype: expected a policy with float32 variables, as the model's, "
            "received float64");
}

TEST(Summary, ShowsPoliciesAndTheCostOfFloat64) {
  Sequential mixed = two_layers("", "float32", kMixedBfloat16);
  const std::string text = mixed.summary({.threads = 1});
  EXPECT_NE(text.find("dtype"), std::string::npos) << text;
  EXPECT_NE(text.find("mixed_bfloat16 │"), std::string::npos) << text;
  EXPECT_NE(text.find(" float32 "), std::string::npos) << text;
  Sequential wide = two_layers("", "", Dtype::float64), narrow = two_layers("", "", Policy());
  const PlanReport plan = narrow.plan({.threads = 1});
  const std::string line = "  in float32 instead: " + format_bytes(plan.arena) +
                           " planned (arena), " + format_bytes(plan.process) + " process\n";
  EXPECT_NE(wide.summary({.threads = 1}).find(line), std::string::npos)
      << line << wide.summary({.threads = 1});
  EXPECT_EQ(narrow.summary({.threads = 1}).find("in float32 instead"), std::string::npos);
}

// Sizes of two Dense layers; `of` says what each is.
Sequential stack(int64_t first, const std::string& dtype = "") {
  Sequential model(Shape{64}, {Dense(first, {.activation = "gelu", .name = "wide"}).dtype(dtype),
                               Dense(10, {.name = "head"})});
  model.compile({.optimizer = Adam(), .loss = Loss{"sparse_categorical_crossentropy", true}});
  return model;
}

TEST(WhatIf, IsThePlanOfTheOtherModel) {
  const SummaryOptions options{
      .batch_size = 256, .threads = 1, .what_if = {"activation", "dtype", "size"}};
  const FitOptions fit{.batch_size = 256, .threads = 1};
  Sequential model = stack(512);
  const Tensors before = model.get_weights();
  const WhatIfReport report = model.what_if(options);
  EXPECT_EQ(report.process, model.plan(fit).process);
  ASSERT_EQ(report.cases.size(), 6u);
  auto find = [&](const std::string& layer, const std::string& change) {
    for (const WhatIfCase& one : report.cases)
      if (one.layer == layer && one.change == change) return one;
    return WhatIfCase();
  };
  EXPECT_EQ(find("wide", "size").process, stack(256).plan(fit).process);
  EXPECT_EQ(find("wide", "size").to, "256 of 512");
  EXPECT_EQ(find("wide", "dtype").process, stack(512, "mixed_bfloat16").plan(fit).process);
  EXPECT_EQ(find("wide", "size").arena, stack(256).plan(fit).arena);
  EXPECT_LT(*find("wide", "size").arena, report.arena);
  EXPECT_EQ(report.arena, model.plan(fit).arena);
  // Labels are not known here: any output can be halved.
  EXPECT_EQ(find("head", "size").to, "5 of 10");
  Sequential again(Shape{64}, {remat(Dense(512, {.activation = "gelu", .name = "wide"})),
                               Dense(10, {.name = "head"})});
  again.compile({.optimizer = Adam(), .loss = Loss{"sparse_categorical_crossentropy", true}});
  EXPECT_EQ(find("wide", "activation").process, again.plan(fit).process);
  // The model is as it was.
  EXPECT_EQ(model.plan(fit).process, report.process);
  ASSERT_EQ(model.get_weights().size(), before.size());
  for (size_t w = 0; w < before.size(); ++w)
    EXPECT_TRUE(same_bits(before[w], model.get_weights()[w]));
  const std::string text = model.summary(options);
  EXPECT_NE(text.find("wide (Dense)"), std::string::npos) << text;
  EXPECT_NE(text.find("256 of 512 -"), std::string::npos) << text;
}

TEST(WhatIf, LeavesOutWhatCannotBe) {
  const Symbolic in = Input({16});
  const Symbolic h = Dense(16, {.name = "one"})(in);
  Model model(in, Dense(4, {.name = "head"})(Add()({h, in})));
  model.compile({.optimizer = SGD(), .loss = "mse"});
  const WhatIfReport report = model.what_if({.threads = 1, .what_if = {"size"}});
  ASSERT_EQ(report.cases.size(), 3u);
  EXPECT_FALSE(report.cases[0].process) << "it would not fit to its input any more";
  EXPECT_FALSE(report.cases[1].process) << "Add has no size";
  EXPECT_TRUE(report.cases[2].process);
  EXPECT_EQ(message([&] { model.summary({.threads = 1, .what_if = {"speed"}}); }),
            "[what_if] expected activation, dtype or size, received 'speed'");
  model.fit(pattern({8, 16}, 1), pattern({8, 4}, 2), {.verbose = 0, .threads = 1});
}

}  // namespace
}  // namespace pl::policy_test

// Checkpointing by hand from the C++ face: less memory, the same bits.
#include "model/remat.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/own_process.h"
#include "train/model.h"

namespace pl::remat_test {
namespace {

Tensor numbers(const Meta& meta, int64_t classes = 0) {
  Tensor tensor(meta);
  uint32_t state = 1;
  for (int64_t i = 0; i < meta.elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    if (classes > 0)
      static_cast<int32_t*>(tensor.data())[i] = static_cast<int32_t>((state >> 8) % classes);
    else
      static_cast<float*>(tensor.data())[i] = static_cast<float>(state >> 8) / 16777216.f - 0.5f;
  }
  return tensor;
}

// Two blocks of three layers with dropout in them: what is computed again must draw it again.
Sequential blocks() {
  std::vector<LayerRef> layers;
  for (const std::string block : {"block_0", "block_1"}) {
    layers.push_back(Dense(256, {.activation = "gelu", .name = block + "/up"}));
    layers.push_back(Dropout(0.25, {.name = block + "/drop"}));
    layers.push_back(Dense(64, {.activation = "tanh", .name = block + "/down"}));
  }
  layers.push_back(Dense(10, {.name = "head"}));
  return Sequential(Shape{64}, layers);
}

struct Trained {
  Tensors weights;
  History history;
  PlanReport report;
};

Trained train(Sequential model, const std::vector<std::string>& remat, Budget memory = {}) {
  model.compile(
      {.optimizer = Adam(), .loss = Loss{"sparse_categorical_crossentropy", true}, .remat = remat});
  const Tensor x = numbers({Dtype::float32, {1024, 64}});
  const Tensor y = numbers({Dtype::int32, {1024}}, 10);
  const FitOptions options{
      .batch_size = 512, .epochs = 2, .verbose = 0, .memory = memory, .split = 1, .threads = 2};
  Trained trained;
  trained.report = model.plan(x, y, options);
  trained.history = model.fit(x, y, options);
  trained.weights = model.get_weights();
  return trained;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())), 0);
}

TEST(RematTraining, TakesLessMemoryAndChangesNoBit) {
  const Trained plain = train(blocks(), {}), by_hand = train(blocks(), {"block_*"});
  expect_equal(plain.weights, by_hand.weights);
  EXPECT_EQ(plain.history.used_arena, plain.history.planned_arena);
  EXPECT_EQ(by_hand.history.used_arena, by_hand.history.planned_arena);
  EXPECT_EQ(plain.report.recomputed.values, 0);
  EXPECT_GT(by_hand.report.recomputed.values, 0);
  EXPECT_EQ(by_hand.report.arena, by_hand.history.planned_arena);
  // A wide activation of one block, (512, 256), is not there while the other block is worked on.
  EXPECT_LE(by_hand.report.arena, plain.report.arena - 512 * 256 * 4);
  EXPECT_EQ(by_hand.report.remat, std::vector<std::string>{"block_*"});
}

TEST(RematTraining, HoldsAtEveryBudget) {
  if (test::ran_in_own_process()) return;
  const Trained free = train(blocks(), {"block_*"});
  const Trained tight = train(blocks(), {"block_*"}, free.report.minimum);
  EXPECT_LE(tight.report.process, free.report.process);
  expect_equal(free.weights, tight.weights);
  EXPECT_EQ(tight.history.used_arena, tight.history.planned_arena);
}

TEST(RematTraining, OfALayerIsThatOfItsName) {
  std::vector<LayerRef> layers{Dense(256, {.activation = "gelu", .name = "wide"}),
                               remat(Dense(256, {.activation = "gelu"})),
                               Dense(10, {.name = "head"})};
  const Trained marked = train(Sequential(Shape{64}, layers), {});
  EXPECT_TRUE(layers[1]->remat);
  std::vector<LayerRef> again{Dense(256, {.activation = "gelu", .name = "wide"}),
                              Dense(256, {.activation = "gelu"}), Dense(10, {.name = "head"})};
  const Trained named = train(Sequential(Shape{64}, again), {"dense"});
  EXPECT_GT(marked.report.recomputed.values, 0);
  EXPECT_EQ(marked.report.arena, named.report.arena);
  EXPECT_EQ(marked.report.recomputed.bytes, named.report.recomputed.bytes);
  expect_equal(marked.weights, named.weights);
}

TEST(RematTraining, OfAFunctionIsAScopeInItsLayersPath) {
  Recorder recorder;
  RecorderScope scope(recorder);
  PathScope layer(&recorder, "layer");
  const Tensor x = recorder.input("x", {Dtype::float32, Shape{2, 3}}, true);
  const auto tail = remat("tail", [](const Tensor& v) { return tanh(scale(v, 2)); });
  scale(tail(x), 3);
  std::vector<std::string> paths;
  for (const Node& node : recorder.graph().nodes) paths.push_back(node.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"layer/remat:tail", "layer/remat:tail", "layer"}));
}

TEST(RematTraining, FullIsEveryLayer) {
  const Trained plain = train(blocks(), {}), full = train(blocks(), {"full"});
  EXPECT_GT(full.report.recomputed.values, 0);
  EXPECT_LT(full.report.arena, plain.report.arena);
  expect_equal(plain.weights, full.weights);
}

TEST(RematTraining, OfAScopeIsKerassRule) {
  const auto in_scope = [](const RematRule& rule) {
    RematScope scope(rule);
    return train(blocks(), {});
  };
  const Trained plain = train(blocks(), {}), full = in_scope({.mode = "full"});
  EXPECT_EQ(full.report.arena, train(blocks(), {"full"}).report.arena);
  // block_0/up and block_1/up have 256 elements a sample, as dropout behind them; others less.
  const Trained large = in_scope({.mode = "output_size", .output_size_threshold = 255});
  const Trained listed =
      in_scope({.mode = "list_of_layers",
                .layer_names = {"block_0/up", "block_0/drop", "block_1/up", "block_1/drop"}});
  const Trained none = in_scope({.mode = "output_size", .output_size_threshold = 256});
  EXPECT_EQ(large.report.arena, listed.report.arena);
  EXPECT_EQ(large.report.recomputed.values, listed.report.recomputed.values);
  EXPECT_GT(large.report.recomputed.values, 0);
  EXPECT_LT(large.report.arena, plain.report.arena);
  EXPECT_EQ(none.report.arena, plain.report.arena);
  const Trained activations = in_scope({.mode = "activations"});
  for (const Trained* run : {&full, &large, &listed, &none, &activations})
    expect_equal(plain.weights, run->weights);
  EXPECT_EQ(train(blocks(), {}).report.arena, plain.report.arena) << "behind the scope";
}

// What is inside of an activation goes, what it hands on stays.
TEST(RematTraining, OfActivationsLeavesTheRest) {
  auto make = [](const char* mode) {
    RematScope scope({.mode = mode});
    return Sequential(Shape{64}, {Dense(256, {.activation = "mish"}),
                                  Dense(256, {.activation = "mish"}), Dense(10)});
  };
  const Trained plain = train(make(""), {}), by_hand = train(make("activations"), {});
  expect_equal(plain.weights, by_hand.weights);
  EXPECT_LE(by_hand.report.arena, plain.report.arena);
}

TEST(RematTraining, AScopeSaysWhatItExpects) {
  auto message = [](const RematRule& rule) -> std::string {
    try {
      RematScope scope(rule);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(message({.mode = "some"}),
            "[remat] mode: expected full, activations, larger_than, list_of_layers or nothing, "
            "received 'some'");
  EXPECT_EQ(message({.mode = "list_of_layers"}),
            "[remat] layer_names: expected names with mode list_of_layers, received none");
}

TEST(RematTraining, ANameThatMatchesNothingIsRefused) {
  try {
    train(blocks(), {"block_*", "blok_1"});
    FAIL() << "it must be refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("[remat] expected the path of a layer"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("'blok_1'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pl::remat_test

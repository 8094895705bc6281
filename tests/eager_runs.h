// compile({.run_eagerly = true}) against planned steps whose ops were not fused: models, and what
// must be equal to the bit, on any device.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "plimsoll.h"
#include "tests/patterns.h"

namespace pl::test {

inline Tensor whole_numbers(Shape shape, int64_t below) {
  Tensor y({Dtype::int32, std::move(shape)});
  for (int64_t i = 0, count = y.meta().elements(); i < count; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7919 % below);
  return y;
}

inline void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].meta(), b[i].meta());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())), 0)
        << "tensor " << i;
  }
}

struct EagerRun {
  History history;
  Tensors weights, outputs;
  Results results;
};

inline EagerRun run_steps(Model model, CompileOptions compile, const Tensor& x, const Tensor& y,
                          bool eager) {
  compile.run_eagerly = eager;
  compile.fuse = false;
  model.compile(compile);
  FitOptions options{.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1};
  options.validation_split = 0.25;
  EagerRun result;
  result.history = model.fit(x, y, options);
  result.weights = model.get_weights();
  result.results = model.evaluate(x, y, {.batch_size = 8, .threads = 1});
  result.outputs = model.predict_all(x, {.batch_size = 8, .threads = 1});
  return result;
}

struct EagerCase {
  const char* name;
  std::function<Model()> make;  // a new one with the same weights: of seed and path alone
  CompileOptions compile;
  Tensor x, y;
};

inline std::vector<EagerCase> eager_cases() {
  const auto convolutional = [] {
    return Sequential(Shape{8, 8, 2},
                      {Conv2D(4, 3, {.padding = "same", .use_bias = false}), BatchNormalization(),
                       ReLU(), MaxPooling2D(), Dropout(0.25), Conv2D(8, 3, {.activation = "relu"}),
                       GlobalAveragePooling2D(), Dense(3, {.activation = "softmax"})});
  };
  const auto transformer = [] {
    const Symbolic tokens = Input({12});
    return Model(tokens, gpt({.layers = 2, .width = 32, .heads = 4, .vocabulary = 48}, tokens));
  };
  const auto mixed = [] {
    return Sequential(Shape{8},
                      {Dense(16, {.activation = "tanh", .kernel_regularizer = "l2"}), Dense(1)});
  };
  return {
      {"convolutional",
       convolutional,
       {.optimizer = Adam({.learning_rate = 0.01}),
        .loss = "sparse_categorical_crossentropy",
        .metrics = {"accuracy"}},
       pattern({28, 8, 8, 2}, 1),
       whole_numbers({28}, 3)},
      {"transformer",
       transformer,
       {.optimizer = AdamW({.learning_rate = 0.01, .global_clipnorm = 1.0}),
        .loss = Loss{"sparse_categorical_crossentropy", true}},
       whole_numbers({16, 12}, 48),
       whole_numbers({16, 12}, 47)},
      {"mixed precision with a loss scale",
       mixed,
       {.optimizer = LossScaleOptimizer(SGD({.learning_rate = 0.05, .momentum = 0.9})),
        .loss = "mse",
        .metrics = {"mae"},
        .dtype = kMixedBfloat16},
       pattern({24, 8}, 1),
       pattern({24, 1}, 2)},
  };
}

inline void expect_eager_is_planned(const EagerCase& of, const std::string& device = "") {
  SCOPED_TRACE(of.name);
  CompileOptions compile = of.compile;
  compile.device = device;
  const EagerRun planned = run_steps(of.make(), compile, of.x, of.y, false);
  const EagerRun eager = run_steps(of.make(), compile, of.x, of.y, true);
  EXPECT_EQ(planned.history.history, eager.history.history);
  EXPECT_EQ(planned.results, eager.results);
  expect_same_bits(planned.weights, eager.weights);
  expect_same_bits(planned.outputs, eager.outputs);
  EXPECT_LE(eager.history.used_arena, eager.history.planned_arena);
  // On the host a process of tests holds more than one of its models.
  if (!device.empty()) {
    EXPECT_LE(eager.history.measured_process, eager.history.planned_process);
  }
  EXPECT_EQ(planned.history.used_arena, planned.history.planned_arena);
}

}  // namespace pl::test

// A layer alone against Keras: networks under the names that tests/golden/keras_layers2.py and its
// like gave them, run through passes, plan and executor, and their outputs and gradients compared.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/json.h"
#include "model/initializer.h"
#include "model/network.h"
#include "plimsoll.h"
#include "tests/graph_run.h"
#include "tests/keras_answers.h"
#include "tests/places.h"
#include "trace/gradient.h"

namespace pl::test {

inline constexpr uint32_t kSeedSalt = 3003, kTargetSalt = 2002;

using Build = std::function<Symbolic(const std::vector<Symbolic>&)>;
struct LayerCase {
  std::vector<Shape> shapes;  // of one sample of each input
  Build build;
  int exponent = 1;
  double tolerance = 1e-10;  // in float64
  double least = 1e-2;       // numbers below it count as if they were as large
  bool training = false;
};

inline LayerCase one(Shape shape, LayerRef layer, int exponent = 1) {
  return {{std::move(shape)},
          [layer](const std::vector<Symbolic>& x) { return layer(x[0]); },
          exponent};
}
inline LayerCase merged(std::vector<Shape> shapes, LayerRef layer) {
  return {std::move(shapes), [layer](const std::vector<Symbolic>& x) { return layer(x); }};
}
inline LayerCase network(Shape shape, Build build, int exponent = 1) {
  return {{std::move(shape)}, std::move(build), exponent};
}
// Keras computes norms in float32 whatever the dtype is; the ops have float64 answers of their own.
inline LayerCase in_float32(LayerCase c) {
  c.tolerance = 2e-6;
  return c;
}

constexpr int kLate = -31;  // as -30, with the first steps among the zeros; states are plain

// As input_values() of the script.
inline Tensor input_values(uint32_t index, const Shape& sample, int exponent) {
  const Shape shape = sample.with_front(kBatch);
  if (exponent == kLate && sample.rank() == 1) return real(kInputSalt + index, shape, 1);
  if (exponent != -30 && exponent != kLate) return real(kInputSalt + index, shape, exponent);
  Tensor x = real(kInputSalt + index, shape, 1);
  const Dim features = sample.back(), steps = sample[sample.rank() - 2];
  const Dim positions = shape.elements() / features;
  const Tensor first = real(kTargetSalt + 1, Shape{positions / steps, features}, 1);
  for (Dim p = 0; p < positions; ++p)
    for (Dim f = 0; f < features; ++f) {
      double& value = x.data_as<double>()[p * features + f];
      value *= hashed(kTargetSalt, p) % 2;
      if (exponent != kLate && p % steps == 0)
        value = first.data_as<double>()[p / steps * features + f];
    }
  return x;
}

inline void copy_to(const Tensor& from, Dtype dtype, void* to) {
  for (int64_t i = 0, count = from.meta().elements(); i < count; ++i) {
    const double value = from.data_as<double>()[i];
    if (dtype == Dtype::float64)
      static_cast<double*>(to)[i] = value;
    else
      static_cast<float*>(to)[i] = static_cast<float>(value);
  }
}

inline void expect_close(const Json& answer, const void* ours, Dtype dtype, const LayerCase& c,
                         const std::string& what) {
  const double tolerance = dtype == Dtype::float32 ? 1e-5 : c.tolerance;
  const auto& values = answer.at("values", "answer").as_array("values");
  const double rms = answer.at("rms", "answer").as_real("rms");
  const auto stride = answer.at("stride", "answer").as_integer("stride");
  for (size_t i = 0; i < values.size(); ++i) {
    const double theirs = values[i].as_real("value");
    const int64_t at = static_cast<int64_t>(i) * stride;
    const double mine = dtype == Dtype::float64
                            ? static_cast<const double*>(ours)[at]
                            : static_cast<double>(static_cast<const float*>(ours)[at]);
    EXPECT_NEAR(mine, theirs, tolerance * std::max({std::fabs(theirs), rms, c.least}))
        << what << " " << at;
  }
}

inline void expect_case(const Json& answer, const LayerCase& c, Dtype dtype) {
  std::vector<Symbolic> inputs;
  for (const Shape& shape : c.shapes) inputs.push_back(Input(shape));
  const Network network(inputs, {c.build(inputs)});
  std::vector<std::string> paths;
  for (const Json& path : answer.at("paths", "case").as_array("paths"))
    paths.push_back(path.as_string("path"));
  Recorder recorder;
  RecorderScope scope(recorder);
  Tensors weights, x;
  for (const NetworkWeight& weight : network.weights())
    weights.push_back(recorder.variable(weight.path, {dtype, weight.shape}, Category::parameters));
  for (const Shape& shape : c.shapes)
    x.push_back(recorder.input("x", {dtype, shape.with_front(kBatch)}, true));
  const Tensor params = recorder.input("params", step_params_meta(), false);
  const Tensor y = network.call(x, weights, c.training, params, dtype)[0];
  const Tensor seed = recorder.input("seed", {dtype, y.shape()}, true);
  Tensors wrt;
  for (size_t w = 0; w < weights.size(); ++w)
    if (network.weights()[w].trainable) wrt.push_back(weights[w]);
  const size_t trainable = wrt.size();
  wrt.insert(wrt.end(), x.begin(), x.end());
  const Tensors slopes = gradients(y, wrt, seed);
  recorder.keep(y, "y");
  for (const Tensor& slope : slopes) {
    ASSERT_TRUE(slope.defined());
    recorder.keep(slope, "slope");
  }
  CpuBackend backend(1);
  PlannedRun run(recorder.take(), backend);
  for (size_t i = 0; i < x.size(); ++i)
    copy_to(input_values(static_cast<uint32_t>(i), c.shapes[i], c.exponent), dtype, run.input(i));
  std::memset(run.input(x.size()), 0, 64);
  copy_to(real(kSeedSalt, y.shape(), 0), dtype, run.input(x.size() + 1));
  size_t normalization = 0;
  for (size_t w = 0; w < weights.size(); ++w) {
    const NetworkWeight& weight = network.weights()[w];
    const auto at = std::find(paths.begin(), paths.end(), weight.path);
    if (at == paths.end()) {  // Keras has the numbers of Normalization as constants
      ASSERT_FALSE(weight.trainable) << weight.path;
      initialize(weight.initializer, {dtype, weight.shape}, 0, weight.path, run.variable(w));
      ++normalization;
      continue;
    }
    const bool scales = weight.path.ends_with("gamma") || weight.path.ends_with("scale") ||
                        weight.path.ends_with("moving_variance");
    copy_to(real(static_cast<uint32_t>(at - paths.begin()), weight.shape, -1, scales ? 1 : 0),
            dtype, run.variable(w));
  }
  ASSERT_EQ(weights.size(), paths.size() + normalization);
  run.step_poisoned();
  EXPECT_EQ(answer.at("y", "case").at("size", "y").as_integer("size"), y.shape().elements());
  expect_close(answer.at("y", "case"), run.kept(0), dtype, c, "y");
  size_t next = 1;
  for (size_t w = 0; w < weights.size(); ++w)
    if (network.weights()[w].trainable)
      expect_close(answer.at("dw", "case").at(network.weights()[w].path, "dw"), run.kept(next++),
                   dtype, c, network.weights()[w].path);
  ASSERT_EQ(next, 1 + trainable);
  for (size_t w = 0; w < weights.size(); ++w)
    if (c.training && !network.weights()[w].trainable)
      expect_close(answer.at("moved", "case").at(network.weights()[w].path, "moved"),
                   run.variable(w), dtype, c, network.weights()[w].path);
  for (size_t i = 0; i < x.size(); ++i)
    expect_close(answer.at("dx", "case").as_array("dx")[i], run.kept(next++), dtype, c,
                 "dx" + std::to_string(i));
}

inline Json keras_answers(const char* file) {
  return parse_json(::pl::test::read_bytes(::pl::test::golden(file)), file);
}

// All cases of `file`'s list `list`, each of which must be among `cases`.
inline void expect_cases(const char* file, const char* list,
                         const std::map<std::string, LayerCase>& cases, Dtype dtype) {
  const Json all = keras_answers(file);
  size_t seen = 0;
  for (const Json& answer : all.at(list, "answers").as_array(list)) {
    const std::string name = answer.at("name", "case").as_string("name");
    SCOPED_TRACE(name);
    const auto found = cases.find(name);
    ASSERT_NE(found, cases.end());
    expect_case(answer, found->second, dtype);
    ++seen;
  }
  EXPECT_EQ(seen, cases.size());
}

}  // namespace pl::test

// Networks against Keras: the inputs and weights that tests/golden/keras_*.py give to a network,
// and the comparison of ten losses, accuracy and predictions in float64 with the stored ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/counter_hash.h"
#include "tests/data_files.h"
#include "tests/places.h"

namespace pl::test {

inline constexpr Dim kBatch = 3;
inline constexpr uint32_t kInputSalt = 1001, kLabelSalt = 1002;

using ::pl::test::hashed;

// uniform in [centre - 2^exponent, centre + 2^exponent)
inline Tensor real(uint32_t salt, Shape shape, int exponent, double centre = 0) {
  Tensor tensor({Dtype::float64, std::move(shape)});
  for (int64_t i = 0, count = tensor.meta().elements(); i < count; ++i) {
    const double whole = static_cast<double>(hashed(salt, i) >> 8) - 8388608.0;
    tensor.data_as<double>()[i] = std::ldexp(whole, exponent - 23) + centre;
  }
  return tensor;
}

inline Tensor integers(uint32_t salt, Shape shape, uint32_t below) {
  return ::pl::test::hashed_integers(salt, std::move(shape), below);
}

inline void set_weights_like_keras(Model& model, const Json& paths) {
  std::vector<std::string> sorted;
  for (const Json& path : paths.as_array("paths")) sorted.push_back(path.as_string("path"));
  Tensors values;
  for (const WeightInfo& weight : model.weights()) {
    const auto at = std::find(sorted.begin(), sorted.end(), weight.path);
    ASSERT_NE(at, sorted.end()) << weight.path << " is not a weight of Keras's network";
    const bool scales = weight.path.ends_with("gamma") || weight.path.ends_with("moving_variance");
    values.push_back(
        real(static_cast<uint32_t>(at - sorted.begin()), weight.meta.shape, -1, scales ? 1 : 0));
  }
  ASSERT_EQ(values.size(), sorted.size());
  model.set_weights(values);
}

// Keras computes norms in float32 whatever the dtype is.
inline constexpr double kWithNorm = 1e-6, kWithoutNorm = 1e-9;

// `file`: of tests/golden; `index`: of the case in it.
inline void expect_agreement(const char* file, size_t index, Model model, const Tensor& x,
                             const Tensor& y, double tolerance) {
  const Json answers = parse_json(::pl::test::read_bytes(::pl::test::golden(file)), file);
  const Json& answer = answers.at("cases", "answers").as_array("cases")[index];
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .dtype = Dtype::float64});
  set_weights_like_keras(model, answer.at("paths", "case"));
  const History history = model.fit(
      x, y, {.batch_size = kBatch, .epochs = 10, .verbose = 0, .shuffle = false, .threads = 1});
  const auto& losses = answer.at("losses", "case").as_array("losses");
  for (size_t i = 0; i < losses.size(); ++i) {
    const double theirs = losses[i].as_real("loss");
    EXPECT_NEAR(history.history.at("loss")[i], theirs, tolerance * theirs) << "step " << i + 1;
  }
  EXPECT_NEAR(model.evaluate(x, y)["accuracy"], answer.at("accuracy", "case").as_real("accuracy"),
              1e-6);
  const Tensor predictions = model.predict(x);
  const auto& wanted = answer.at("predictions", "case").as_array("predictions");
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(predictions.data_as<double>()[i], wanted[i].as_real("prediction"), 3 * tolerance)
        << i;
}

}  // namespace pl::test

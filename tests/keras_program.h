// What tests of whole Keras programs share: data, weights and stored answers
// (tests/golden/keras_programs.py).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/data_files.h"
#include "tests/places.h"

namespace pl::test {

using Shown = std::map<std::string, std::vector<double>>;

inline Tensor wave(const Shape& shape, double phase, double amplitude = 1) {
  Tensor x({Dtype::float32, shape});
  for (int64_t i = 0, count = shape.elements(); i < count; ++i)
    x.data_as<float>()[i] =
        static_cast<float>(amplitude * std::sin(12.9898 * static_cast<double>(i + 1) + phase));
  return x;
}
inline Tensor labels(Dim n, Dim classes) {
  Tensor y({Dtype::int32, {n}});
  for (Dim i = 0; i < n; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>((i * 7 + 3 + i / 5) % classes);
  return y;
}
inline Tensor tokens(const Shape& shape, int64_t vocabulary) {
  Tensor x({Dtype::int32, shape});
  for (int64_t i = 0, count = shape.elements(); i < count; ++i)
    x.data_as<int32_t>()[i] = static_cast<int32_t>((i * i + 3 * i + i / 7) % vocabulary);
  return x;
}
inline void settle(Model& model) {
  Tensors weights = model.get_weights();
  for (size_t k = 0; k < weights.size(); ++k)
    if (weights[k].shape().rank() >= 2)
      weights[k] = wave(weights[k].shape(), static_cast<double>(k), 0.3);
  model.set_weights(weights);
}
inline double total(const Tensor& x) { return item(ops::sum(ops::cast(x, Dtype::float64))); }
inline double weight_sum(Model& model) {
  double sum = 0;
  for (const Tensor& weight : model.get_weights()) sum += total(ops::abs(weight));
  return sum;
}

inline void expect_shown(const std::string& program, const Shown& ours, double tolerance = 5e-5) {
  const Json all = parse_json(test::read_bytes(golden("keras_programs.json")), "programs");
  for (const auto& [name, numbers] : all.at(program, "programs").as_object("program")) {
    const auto found = ours.find(name);
    ASSERT_NE(found, ours.end()) << program << " " << name;
    const auto& theirs = numbers.as_array(name);
    ASSERT_EQ(found->second.size(), theirs.size()) << program << " " << name;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const double wanted = theirs[i].as_real(name);
      EXPECT_NEAR(found->second[i], wanted, tolerance * std::max(std::abs(wanted), 1e-3))
          << program << " " << name << " " << i;
    }
  }
}

inline const FitOptions kFit{.verbose = 0, .shuffle = false, .threads = 1};
inline FitOptions with(int64_t batch, int64_t epochs) {
  FitOptions options = kFit;
  options.batch_size = batch, options.epochs = epochs;
  return options;
}

}  // namespace pl::test

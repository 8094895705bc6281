// Whole training steps on seeded weights and samples, and how far two runs of one step differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "op/step_params.h"
#include "tests/graph_run.h"

namespace pl::test {

inline void put(void* data, Dtype dtype, int64_t i, double value) {
  if (dtype == Dtype::float64)
    static_cast<double*>(data)[i] = value;
  else
    static_cast<float*>(data)[i] = static_cast<float>(value);
}

// Weights near a usual initialisation; optimiser slots at zero.
inline void fill_model(PlannedRun& run) {
  Numbers numbers(4);
  const auto& variables = run.graph().variables;
  for (size_t v = 0; v < variables.size(); ++v)
    for (int64_t i = 0, count = variables[v].meta.elements(); i < count; ++i)
      put(run.variable(v), variables[v].meta.dtype, i,
          variables[v].category == Category::optimizer ? 0 : 0.2 * numbers.real() - 0.1);
}

inline void fill_batch(PlannedRun& run, int64_t batch, int64_t step) {
  const Graph& graph = run.graph();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Meta& meta = graph.values[index(graph.inputs[i])].meta;
    Numbers numbers(static_cast<uint64_t>(step) * 10 + i);
    if (meta == step_params_meta()) {
      const StepParams params{.step = step, .seed = 7, .learning_rate = 0.01, .rows = batch};
      std::memcpy(run.input(i), &params, sizeof params);
    } else {
      fill_numbers(meta, numbers, run.input(i), 5);
    }
  }
}

inline std::vector<double> numbers_of(const std::string& bytes, Dtype dtype) {
  std::vector<double> result;
  if (dtype == Dtype::float64) {
    result.resize(bytes.size() / sizeof(double));
    std::memcpy(result.data(), bytes.data(), bytes.size());
  } else {
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    result.assign(floats.begin(), floats.end());
  }
  return result;
}

// The largest difference over all results, relative to the largest element of each.
inline double distance(PlannedRun& a, PlannedRun& b) {
  const auto x = results(a), y = results(b);
  const Graph& graph = a.graph();
  double worst = x.size() == y.size() ? 0 : 1e300;
  for (size_t r = 0; r < std::min(x.size(), y.size()); ++r) {
    const size_t kept = graph.keep.size();
    const Dtype dtype = r < kept ? graph.values[index(graph.keep[r])].meta.dtype
                                 : graph.variables[r - kept].meta.dtype;
    const std::vector<double> p = numbers_of(x[r], dtype), q = numbers_of(y[r], dtype);
    double most = 1e-6, difference = p.size() == q.size() ? 0 : 1e300;
    for (size_t i = 0; i < std::min(p.size(), q.size()); ++i) {
      if (!std::isfinite(p[i]) || !std::isfinite(q[i])) return 1e300;
      most = std::max(most, std::abs(p[i]));
      difference = std::max(difference, std::abs(p[i] - q[i]));
    }
    worst = std::max(worst, difference / most);
  }
  return worst;
}

}  // namespace pl::test

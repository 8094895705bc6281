// What the counting metrics share. Internal to model/.
#pragma once

#include "model/metrics.h"

namespace pl::metrics {

// The first largest of each row as a row with a 1 there.
Tensor first_largest(const Tensor& x);

// The mean of several numbers, for logs.
inline Metric::Result mean_of(
    const std::function<std::vector<double>(std::span<const double>)>& results) {
  return [results](std::span<const double> state) {
    const std::vector<double> all = results(state);
    double sum = 0;
    for (double value : all) sum += value;
    return sum / static_cast<double>(all.size());
  };
}

inline double divide_no_nan(double a, double b) { return b != 0 ? a / b : 0; }

}  // namespace pl::metrics

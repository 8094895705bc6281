// What the counting metrics share. Internal to model/.
#pragma once

#include "model/metrics.h"

namespace pl::metrics {

// The first largest of each row as a row with a 1 there.
Tensor first_largest(const Tensor& x);

inline double divide_no_nan(double a, double b) { return b != 0 ? a / b : 0; }

}  // namespace pl::metrics

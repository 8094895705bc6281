// random: normal or uniform numbers, drawn anew in each step. A number is a pure function of seed,
// step, stream and its index in the *full* batch: splitting the batch or running again gives the
// same.
#pragma once

#include <string>

#include "op/op.h"

namespace pl {

extern const Op kRandom;

struct RandomOptions {
  std::string distribution = "normal";  // mean a, deviation b; or "uniform" in [a, b)
  double a = 0, b = 1;
};

// `stream`: a hash of the layer's path and call index. `rows`: dimension 0 counts the samples of
// the batch being traced.
Tensor draw(const Shape& shape, const Tensor& step_params, int64_t stream,
            const RandomOptions& options = {}, Dtype dtype = Dtype::float32, bool rows = false);

namespace cpu {
std::unique_ptr<Kernel> random_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

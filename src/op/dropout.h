// dropout: zeroes a share `rate` of the elements and scales the rest by 1 / (1 - rate). Which ones
// is a pure function of seed, step, stream and the element's index in the *full* batch: splitting
// the batch or running again gives the same mask, and the gradient recomputes it.
#pragma once

#include "op/op.h"
#include "op/philox.h"

namespace pl {

extern const Op kDropout;
extern const Op kDropoutGradient;

// `stream`: a hash of the layer's path and call index. step_params: op/step_params.h.
Tensor dropout(const Tensor& x, const Tensor& step_params, double rate, int64_t stream);
Tensor dropout_gradient(const Tensor& dy, const Tensor& step_params, double rate, int64_t stream);

namespace cpu {

struct DropoutForm {
  Dim total, per_row;  // elements; per_row 0: there are no samples to count from
  double rate;
  uint64_t stream;
  // Of a band of image rows: elements in a row, rows in the whole image, first row of each band.
  Dim image_row = 0, height = 0;
  std::vector<int64_t> starts = {};
  double factor() const { return 1 / (1 - rate); }
};
// What one step draws from: element i is kept when word base + i of the stream reaches the
// threshold.
struct DropoutMask {
  PhiloxKey key;
  uint64_t step;
  Dim base;
  uint32_t threshold;
};
DropoutForm dropout_form(const PrepareCall&);
DropoutMask dropout_mask(const DropoutForm& form, const void* step_params);
// `count` elements, the first of which is element 0 of the mask; y may be x.
void dropout_tile(const float* x, float* y, Dim count, const DropoutMask& mask, double factor);
void dropout_tile(const double* x, double* y, Dim count, const DropoutMask& mask, double factor);

std::unique_ptr<Kernel> dropout_simd(const PrepareCall&);
std::unique_ptr<Kernel> dropout_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

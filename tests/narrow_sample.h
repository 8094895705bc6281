// A sample's call in 16-bit floats, and the same numbers in float64.
#pragma once

#include <utility>

#include "op/sample.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"

namespace pl::test {

// The inputs with their reals rounded to `dtype`, but for what the op keeps in float32; `exact`:
// the same numbers in float64.
struct NarrowInputs {
  Tensors in, exact;
};

template <class Narrow>
NarrowInputs narrow_inputs(const Op& op, const Sample& sample, Dtype dtype) {
  NarrowInputs result;
  const Tensors values = sample_inputs(op, sample, Dtype::float32);
  const RowMask kept = op.wide_operands ? op.wide_operands(sample.attrs, values.size()) : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    result.in.push_back(values[i]);
    result.exact.push_back(values[i]);
    if (values[i].dtype() != Dtype::float32) continue;
    const Shape& shape = values[i].shape();
    const bool rounds = ((kept >> i) & 1) == 0;
    if (rounds) result.in[i] = Tensor({dtype, shape});
    result.exact[i] = Tensor({Dtype::float64, shape});
    for (int64_t k = 0, count = values[i].meta().elements(); k < count; ++k) {
      const Narrow rounded(values[i].data_as<float>()[k]);
      if (rounds) result.in[i].data_as<Narrow>()[k] = rounded;
      result.exact[i].data_as<double>()[k] =
          static_cast<double>(rounds ? static_cast<float>(rounded) : values[i].data_as<float>()[k]);
    }
  }
  return result;
}
inline NarrowInputs narrow_inputs(const Op& op, const Sample& sample, Dtype dtype) {
  return dtype == Dtype::bfloat16 ? narrow_inputs<Bfloat16>(op, sample, dtype)
                                  : narrow_inputs<Float16>(op, sample, dtype);
}

}  // namespace pl::test

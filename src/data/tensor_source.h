// Sources over other things than files: tensors in memory, and a part of another source.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"
#include "tensor/tensor.h"

namespace pl {

// Samples are rows of the tensors, which are held, not copied. Integer y are labels: they are
// handed out as int32, and (N, 1) of them as one label a sample. resident_bytes() is the tensors'
// own bytes, since they lie in this process. Throws DataError when counts differ or there is no
// sample.
std::unique_ptr<Source> tensor_source(Tensor x, Tensor y);
std::unique_ptr<Source> tensor_source(Tensor x);  // for predict: fields() has x alone

struct NamedTensor {
  std::string name;
  Tensor values;
};
// The same for several inputs and targets, and for sample weights (floating).
std::unique_ptr<Source> tensor_source(const std::vector<NamedTensor>& x,
                                      const std::vector<NamedTensor>& y,
                                      const std::vector<NamedTensor>& weights = {});

// The same samples, each with the weight 1; the source must outlive it.
std::unique_ptr<Source> unit_weights(Source& source);
// Each with the weight of its class: the label, or the first largest of a row of targets, as Keras
// has it; 1 for a class without one. The source has one target, and no weights.
std::unique_ptr<Source> class_weights(Source& source, const std::map<int64_t, double>& weights);

// Samples [begin, begin + size) of another source, which must outlive it.
std::unique_ptr<Source> range_source(Source& source, int64_t begin, int64_t size);

}  // namespace pl

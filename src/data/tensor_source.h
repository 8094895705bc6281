// Sources over other things than files: tensors in memory, and a part of another source.
#pragma once

#include <memory>

#include "data/source.h"
#include "tensor/tensor.h"

namespace pl {

// Samples are rows of the tensors, which are held, not copied. Integer y are labels: they are
// handed out as int32, and (N, 1) of them as one label a sample. resident_bytes() is the tensors'
// own bytes, since they lie in this process. Throws DataError when counts differ or there is no
// sample.
std::unique_ptr<Source> tensor_source(Tensor x, Tensor y);
std::unique_ptr<Source> tensor_source(Tensor x);  // for predict: fields() has x alone

// Samples [begin, begin + size) of another source, which must outlive it.
std::unique_ptr<Source> range_source(Source& source, int64_t begin, int64_t size);

}  // namespace pl

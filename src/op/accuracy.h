// Accuracies, one number (0 or 1) a sample: whether the first largest score is at the right class.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kSparseCategoricalAccuracy;
extern const Op kCategoricalAccuracy;

// scores (B, ..., C), labels int32 (B, ...). Result float32 (B, ...).
Tensor sparse_categorical_accuracy(const Tensor& scores, const Tensor& labels);
// scores and targets (B, ..., C). The right class is the first largest target.
Tensor categorical_accuracy(const Tensor& scores, const Tensor& targets);

namespace cpu {
std::unique_ptr<Kernel> sparse_categorical_accuracy_reference(const PrepareCall&);
std::unique_ptr<Kernel> categorical_accuracy_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

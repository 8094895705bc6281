// Regularizers, with Keras's names and formulas: a penalty on a weight or on a layer's output that
// is added to the loss.
#pragma once

#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

class Network;

// A regularizer is a text (model/spec.h): "l2:0.01"; "" is none. These functions write such texts.
namespace regularizers {

std::string L1(double l1 = 0.01);
std::string L2(double l2 = 0.01);
struct L1L2Options {
  double l1 = 0;
  double l2 = 0;
};
std::string L1L2(L1L2Options options = {});
struct OrthogonalOptions {
  double factor = 0.01;
  std::string mode = "rows";  // or "columns"
};
std::string OrthogonalRegularizer(OrthogonalOptions options = {});

}  // namespace regularizers

void check_regularizer(const std::string& text);  // throws UserError listing the known ones

// The penalty of x, a scalar of its dtype.
Tensor penalty(const std::string& regularizer, const Tensor& x);

// loss + the penalties of all trainable weights + `others`, what layers added while they were
// called (NetworkNotes::losses). The loss itself where there is none of these.
Tensor add_penalties(const Tensor& loss, const Network& network, const Tensors& weights,
                     const Tensors& others = {});

// x divided by its length along the axes, which is at least 1e-7.
Tensor unit_length(const Tensor& x, const std::vector<int64_t>& axes);

}  // namespace pl

// embedding: rows of a table picked by index, and the gradient, which sums into those rows.
// An index outside [0, V) gives a row of NaN, as a label outside does in the loss; it adds to no
// row of the gradient.
#pragma once

#include <optional>

#include "op/op.h"

namespace pl {

extern const Op kEmbedding;
extern const Op kEmbeddingGradient;
extern const Op kEmbeddingGradientOnto;
extern const Op kEmbeddingGradientAccumulate;  // onto a running sum, whose next version it is

// table (V, D), indices int32 of any shape S. Result (S..., D).
Tensor embedding(const Tensor& table, const Tensor& indices);

// indices S, dy (S..., D). Result (V, D) with V = `depth`: for each row the sum of dy where it was
// picked, in the order of the indices. `onto` (V, D) is added to that sum and may give its place,
// so that a table with a second gradient (a tied head) needs no second buffer; the bits are those
// of add(onto, embedding_gradient(indices, dy, depth)). 16-bit dy may be summed to a float32
// result.
Tensor embedding_gradient(const Tensor& indices, const Tensor& dy, Dim depth,
                          const Tensor& onto = Tensor(), std::optional<Dtype> dtype = {});

namespace cpu {
std::unique_ptr<Kernel> embedding_reference(const PrepareCall&);
std::unique_ptr<Kernel> embedding_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

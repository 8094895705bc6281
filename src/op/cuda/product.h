// One matrix product through cuBLASLt: C = op(A) x op(B) in row-major order, the algorithm chosen
// by the library's heuristic when it is prepared and the same from then on.
#pragma once

#include <memory>
#include <string>

#include "op/op.h"

namespace pl::cuda {

struct ProductForm {
  Dim m = 0, n = 0, k = 0;  // C (m, n)
  bool transpose_a = false, transpose_b = false;
  Dtype in = Dtype::float32, out = Dtype::float32;
  bool bias = false;                       // of n numbers, of dtype out, in the library's epilogue
  bool onto = false;                       // C += instead of C =
  bool added = false;                      // C = ... + another matrix like C
  bool gelu_slope = false;                 // times gelu's slope at another matrix like C, 16 bits
  Dim batch = 1;                           // products, each behind the other
  Dim a_step = 0, b_step = 0, c_step = 0;  // elements from one to the next
  Bytes alignment = 256;                   // of all pointers
};
// Of operands: what is placed by a plan lies at multiples of 256.
inline Bytes product_alignment(Bytes operands) {
  return operands < kFullAlignment ? operands : Bytes{256};
}

class Product {
 public:
  // Null when the library has no algorithm for it.
  static std::unique_ptr<Product> prepare(Backend& backend, const ProductForm& form);
  ~Product();
  // `other`: what is added, or where gelu's slope is taken.
  void run(const void* a, const void* b, void* c, void* workspace, const void* bias = nullptr,
           const void* other = nullptr);
  Bytes workspace_bytes() const;
  const std::string& key() const;

 private:
  struct State;
  explicit Product(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Adds bias (n,) of dtype `bias` to each row of c (rows, n), then relu; bias may be null.
void launch_bias(Backend& backend, Dtype dtype, void* c, Dtype bias_dtype, const void* bias,
                 Dim rows, Dim n, bool relu);

// Sums of the columns of dy (rows, n), in wide(dtype), or these added to `to`.
void launch_bias_gradient(Backend& backend, Dtype dtype, const void* dy, void* to, Dim rows, Dim n,
                          bool onto, void* workspace);
Bytes bias_gradient_bytes(const Backend& backend, Dtype dtype, Dim rows, Dim n);

// y (columns, rows) from x (rows, columns), of float32 or 16-bit floats.
void launch_transpose(Backend& backend, Dtype from, const void* x, Dtype to, void* y, Dim rows,
                      Dim columns);

}  // namespace pl::cuda

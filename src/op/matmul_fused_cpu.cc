// CPU kernels of products with what follows them: matmul's kernel, then a pass over its result.
#include "op/gelu.h"
#include "op/matmul_fused.h"
#include "op/then-inl.h"

namespace pl::cpu {

std::unique_ptr<Kernel> matmul_add_composed(const PrepareCall& call) {
  std::vector<size_t> operands{0, 1};
  if (call.in.size() > 3) operands.push_back(3);
  return then(kMatmul, std::move(operands), 2, call, kThenAdd);
}
std::unique_ptr<Kernel> matmul_gelu_gradient_composed(const PrepareCall& call) {
  return then(kMatmul, {0, 1}, 2, call, [](const auto* x, auto* result, Dim count) {
    gelu_gradient_row(x, result, result, count, true);
  });
}

}  // namespace pl::cpu

// layer_norm_gradients of rows that are too long to hold: the kernels of its parts, and one that
// adds. dx may lie on x, dy or what is added: the sums are made first, and dx in workspace.
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/layer_norm_gradients.h"

namespace pl::cuda {
namespace {

class NormGradientParts final : public Kernel {
 public:
  NormGradientParts(const PrepareCall& call, Prepared sums, Prepared input, Prepared add)
      : sums_(std::move(sums)), input_(std::move(input)), add_(std::move(add)) {
    inner_at_ = add_ ? align_up(call.out[0].bytes(), CudaBackend::kAlignment) : 0;
    Bytes inner = std::max(sums_->workspace_bytes, input_->workspace_bytes);
    if (add_) inner = std::max(inner, add_->workspace_bytes);
    workspace_bytes = inner_at_ + inner;
    key = "parts";
    footprint = static_cast<Bytes>(sizeof *this) + sums_->footprint + input_->footprint;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    void* const operands[] = {in[0], in[2], in[3], in[4]};
    void* const results[] = {out[1], out[2]};
    sums_->run(operands, results, space + inner_at_);
    void* const dx[] = {add_ ? space : out[0]};
    input_->run(in, dx, space + inner_at_);
    if (!add_) return;
    void* const terms[] = {dx[0], in[5]};
    add_->run(terms, out, space + inner_at_);
  }

 private:
  Prepared sums_, input_, add_;
  Bytes inner_at_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> layer_norm_gradients_parts(const PrepareCall& call) {
  const Metas of_sums{call.in[0], call.in[2], call.in[3], call.in[4]};
  const Metas sums{call.out[1], call.out[2]}, input{call.out[0]}, terms{call.out[0], call.out[0]};
  const Metas of_input(call.in.begin(), call.in.begin() + 5);
  Prepared first = layer_norm_parameter_gradient({call.backend, of_sums, sums, call.attrs});
  Prepared second = layer_norm_gradient({call.backend, of_input, input, call.attrs});
  Prepared add;
  if (call.in.size() > 5) add = pointwise({call.backend, terms, input, call.attrs}, TileOp::add);
  if (!first || !second || (call.in.size() > 5 && !add)) return nullptr;
  return std::make_unique<NormGradientParts>(call, std::move(first), std::move(second),
                                             std::move(add));
}

}  // namespace pl::cuda

// CPU kernel of layer_norm_gradients: the kernels of its parts, one behind the other. dx may lie on
// x, dy or what is added: the sums are made first, and dx in workspace.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/layer_norm.h"
#include "op/layer_norm_gradients.h"

namespace pl::cpu {
namespace {

template <class T>
class Composed final : public Kernel {
 public:
  Composed(const PrepareCall& call, std::unique_ptr<Kernel> sums, std::unique_ptr<Kernel> input)
      : sums_(std::move(sums)),
        input_(std::move(input)),
        count_(call.in[0].elements()),
        threads_(call.backend.threads()),
        adds_(call.in.size() > 5) {
    inner_at_ = align_up(adds_ ? count_ * static_cast<Bytes>(sizeof(T)) : 0, 64);
    workspace_bytes = inner_at_ + std::max(sums_->workspace_bytes, input_->workspace_bytes);
    key = sums_->key + input_->key;
    footprint = static_cast<Bytes>(sizeof *this) + sums_->footprint + input_->footprint;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    void* const operands[] = {in[0], in[2], in[3], in[4]};
    void* const results[] = {out[1], out[2]};
    sums_->run(operands, results, space + inner_at_);
    void* const dx[] = {adds_ ? space : out[0]};
    input_->run(in, dx, space + inner_at_);
    if (!adds_) return;
    const T *part = static_cast<const T*>(dx[0]), *added = static_cast<const T*>(in[5]);
    T* total = static_cast<T*>(out[0]);
    parallel_ranges(threads_, count_, count_, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) total[i] = part[i] + added[i];
    });
  }

 private:
  std::unique_ptr<Kernel> sums_, input_;
  Dim count_;
  int threads_;
  bool adds_;
  Bytes inner_at_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> layer_norm_gradients_composed(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    const Metas of_sums{call.in[0], call.in[2], call.in[3], call.in[4]};
    const Metas sums{call.out[1], call.out[2]};
    const Metas of_input(call.in.begin(), call.in.begin() + 5), input{call.out[0]};
    return std::make_unique<Composed<T>>(
        call, prepare(kLayerNormParameterGradient, {call.backend, of_sums, sums, call.attrs}),
        prepare(kLayerNormGradient, {call.backend, of_input, input, call.attrs}));
  });
}

}  // namespace pl::cpu

// CPU kernel of conv2d_input_gradient_add: the gradient in workspace, then a pass that adds. The
// result may lie on what is added.
#include "backend/cpu/parallel.h"
#include "op/conv2d_gradient_add.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

template <class T>
class Composed final : public Kernel {
 public:
  Composed(const PrepareCall& call, std::unique_ptr<Kernel> gradient)
      : gradient_(std::move(gradient)),
        count_(call.out[0].elements()),
        threads_(call.backend.threads()),
        inner_at_(align_up(call.out[0].bytes(), 64)) {
    workspace_bytes = inner_at_ + gradient_->workspace_bytes;
    key = gradient_->key;
    library = gradient_->library;
    transient = gradient_->transient;
    footprint = static_cast<Bytes>(sizeof *this) + gradient_->footprint;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    void* const made[] = {workspace};
    gradient_->run(in, made, static_cast<char*>(workspace) + inner_at_);
    const T *part = static_cast<const T*>(workspace), *added = static_cast<const T*>(in[2]);
    T* total = static_cast<T*>(out[0]);
    parallel_ranges(threads_, count_, count_, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) total[i] = part[i] + added[i];
    });
  }

 private:
  std::unique_ptr<Kernel> gradient_;
  Dim count_;
  int threads_;
  Bytes inner_at_;
};

}  // namespace

std::unique_ptr<Kernel> conv2d_input_gradient_add_composed(const PrepareCall& call) {
  const Metas in{call.in[0], call.in[1]};
  return dispatch_float(call.out[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<Composed<T>>(
        call, prepare(kConv2dInputGradient, {call.backend, in, call.out, call.attrs}));
  });
}

}  // namespace pl::cpu

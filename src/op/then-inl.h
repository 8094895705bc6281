// A kernel, and a pass over its one result together with another operand: CPU kernels of ops that
// the planner joins for devices. For `*_cpu.cc` files.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"

namespace pl::cpu {

template <class T, class Finish>
class ThenKernel final : public Kernel {
 public:
  // `operands`: which of the call's the first kernel gets. `other`: the one for the pass.
  ThenKernel(std::unique_ptr<Kernel> first, std::vector<size_t> operands, size_t other,
             const PrepareCall& call, Finish finish)
      : first_(std::move(first)),
        operands_(std::move(operands)),
        in_(operands_.size()),
        other_(other),
        count_(call.out[0].elements()),
        threads_(call.backend.threads()),
        finish_(finish) {
    workspace_bytes = first_->workspace_bytes;
    key = first_->key;
    library = first_->library;
    transient = first_->transient;
    footprint = static_cast<Bytes>(sizeof *this) + first_->footprint +
                static_cast<Bytes>(in_.size() * (sizeof(void*) + sizeof(size_t)));
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = in[operands_[i]];
    first_->run(in_.data(), out, workspace);
    const T* other = static_cast<const T*>(in[other_]);
    T* result = static_cast<T*>(out[0]);
    parallel_ranges(threads_, count_, count_, [&](Dim begin, Dim end) {
      finish_(other + begin, result + begin, end - begin);
    });
  }

 private:
  std::unique_ptr<Kernel> first_;
  std::vector<size_t> operands_;
  std::vector<void*> in_;
  size_t other_;
  Dim count_;
  int threads_;
  Finish finish_;
};

// `op` on the operands, then finish(other, result, count) in place.
template <class Finish>
std::unique_ptr<Kernel> then(const Op& op, std::vector<size_t> operands, size_t other,
                             const PrepareCall& call, Finish finish) {
  Metas in;
  for (size_t i : operands) in.push_back(call.in[i]);
  return dispatch_float(call.out[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    auto typed = [finish](const T* extra, T* result, Dim count) { finish(extra, result, count); };
    return std::make_unique<ThenKernel<T, decltype(typed)>>(
        prepare(op, {call.backend, in, call.out, call.attrs}), std::move(operands), other, call,
        typed);
  });
}

inline constexpr auto kThenAdd = [](const auto* extra, auto* result, Dim count) {
  for (Dim i = 0; i < count; ++i) result[i] += extra[i];
};

}  // namespace pl::cpu

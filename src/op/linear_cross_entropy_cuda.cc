// CUDA kernel of linear_cross_entropy, by cuBLASLt: blocks of rows, whose logits are all that
// exists.
#include "backend/cuda/cuda_libraries.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"
#include "op/cuda/score_rows.h"
#include "op/linear_cross_entropy.h"

namespace pl::cuda {
namespace {

// Rows of logits that exist at a time: enough for products to run at full speed and for dW, which
// is read and written once for each block, not to matter.
constexpr Bytes kMostLogits = Bytes{288} << 20;
constexpr Dim kMostRows = 8192;
constexpr Dim kTile = 128;  // rows and columns of a result that the library's kernels make at once

class LinearCrossEntropyCuda final : public Kernel {
 public:
  LinearCrossEntropyCuda(CudaBackend& backend, const PrepareCall& call, bool accumulate)
      : backend_(backend),
        f_(cpu::linear_cross_entropy_form(call, accumulate)),
        dtype_(call.in[static_cast<size_t>(f_.first)].dtype),
        aligned_(call.in_alignment(static_cast<size_t>(f_.first))) {
    const Bytes row = f_.classes * size_of(dtype_);
    block_ =
        std::clamp<Dim>(kMostLogits / std::max<Bytes>(1, row) / kTile * kTile, kTile, kMostRows);
    block_ = std::min(fill_processors(block_), std::max<Dim>(1, f_.rows));
    footprint = static_cast<Bytes>(sizeof *this);
  }

  bool prepare() {
    if (f_.rows == 0) return true;
    const Dim rest = f_.rows % block_;
    if (!prepare_set(whole_, block_) || (rest > 0 && !prepare_set(rest_, rest))) return false;
    scratch_at_ = align_up(block_ * f_.classes * size_of(dtype_), CudaBackend::kAlignment);
    sums_at_ = align_up(scratch_at_ + scratch_, CudaBackend::kAlignment);
    workspace_bytes = sums_at_;
    if (f_.dbias >= 0)
      workspace_bytes += std::max(bias_gradient_bytes(backend_, dtype_, block_, f_.classes),
                                  bias_gradient_bytes(backend_, dtype_, rest, f_.classes));
    key = "rows" + std::to_string(block_) + ":" + whole_.logits->key();
    if (whole_.dw) key += "+" + whole_.dw->key() + "+" + whole_.dh->key();
    library = "cublasLt";
    return true;
  }

  void run(void* const* operands, void* const* out, void* workspace) override {
    char* logits = static_cast<char*>(workspace);
    char* scratch = logits + scratch_at_;
    void* const* in = operands + f_.first;
    start(operands, out);
    for (Dim first = 0; first < f_.rows; first += block_) {
      const Dim count = std::min(block_, f_.rows - first);
      Set& set = count == block_ ? whole_ : rest_;
      const int64_t size = size_of(dtype_), full = size_of(wide(dtype_));
      const char* h = static_cast<const char*>(in[0]) + first * f_.inner * size;
      set.logits->run(h, in[1], logits, scratch);
      if (f_.bias >= 0)
        launch_bias(backend_, dtype_, logits, wide(dtype_), in[f_.bias], count, f_.classes, false);
      launch_head_rows(
          {backend_.stream(), backend_.multiprocessors()}, dtype_,
          {.labels = static_cast<const int32_t*>(in[2]) + first,
           .dloss = f_.dloss < 0 ? nullptr : static_cast<const char*>(in[f_.dloss]) + first * full,
           .loss = static_cast<char*>(out[0]) + first * full,
           .correct = static_cast<float*>(out[f_.correct]) + first},
          logits, count, f_.classes);
      if (f_.dw < 0) continue;
      Product& onto = first == 0 && !f_.accumulate() ? *set.first_dw : *set.dw;
      // dW is h^T x dlogits, or its transpose; h is read before dh may take its place.
      onto.run(f_.transpose_b ? logits : h, f_.transpose_b ? h : logits, out[f_.dw], scratch);
      if (f_.dbias >= 0)
        launch_bias_gradient(backend_, dtype_, logits, out[f_.dbias], count, f_.classes, first > 0,
                             logits + sums_at_);
      set.dh->run(logits, in[1], static_cast<char*>(out[f_.dh]) + first * f_.inner * size, scratch);
    }
    check_launch(key.c_str());
  }

 private:
  // The products of a block.
  struct Set {
    std::unique_ptr<Product> logits, dh, first_dw, dw;
  };

  std::unique_ptr<Product> product(ProductForm form) {
    form.in = dtype_;
    form.alignment = product_alignment(aligned_);
    auto made = Product::prepare(backend_, form);
    if (made) scratch_ = std::max(scratch_, made->workspace_bytes());
    return made;
  }

  bool prepare_set(Set& set, Dim rows) {
    const bool tb = f_.transpose_b;
    set.logits =
        product({.m = rows, .n = f_.classes, .k = f_.inner, .transpose_b = tb, .out = dtype_});
    if (!set.logits) return false;
    if (f_.dw < 0) return true;
    set.dh =
        product({.m = rows, .n = f_.inner, .k = f_.classes, .transpose_b = !tb, .out = dtype_});
    ProductForm dw{.m = tb ? f_.classes : f_.inner,
                   .n = tb ? f_.inner : f_.classes,
                   .k = rows,
                   .transpose_a = true,
                   .out = wide(dtype_)};
    set.first_dw = product(dw);
    dw.onto = true;
    set.dw = product(dw);
    return set.dh && set.first_dw && set.dw;
  }

  // dh has few columns: of blocks with up to a quarter fewer rows the one whose tiles leave the
  // fewest processors idle in the last round.
  Dim fill_processors(Dim most) const {
    const Dim processors = backend_.multiprocessors();
    const Dim columns = (f_.inner + kTile - 1) / kTile;
    Dim best = most, fewest = processors;
    for (Dim rows = most; rows >= most * 3 / 4 && rows >= kTile; rows -= kTile) {
      const Dim idle = (processors - rows / kTile * columns % processors) % processors;
      if (idle < fewest) best = rows, fewest = idle;
    }
    return best;
  }

  // What no block writes first: a sum that is added to, or the gradients of no rows.
  void start(void* const* in, void* const* out) {
    if (f_.dw < 0) return;
    const auto size = static_cast<size_t>(size_of(wide(dtype_)));
    const size_t weights = static_cast<size_t>(f_.classes * f_.inner) * size;
    if (f_.accumulate()) {
      if (in[0] != out[f_.dw])
        cudaMemcpyAsync(out[f_.dw], in[0], weights, cudaMemcpyDeviceToDevice, backend_.stream());
    } else if (f_.rows == 0) {
      cudaMemsetAsync(out[f_.dw], 0, weights, backend_.stream());
    }
    if (f_.rows == 0 && f_.dbias >= 0)
      cudaMemsetAsync(out[f_.dbias], 0, static_cast<size_t>(f_.classes) * size, backend_.stream());
  }

  CudaBackend& backend_;
  cpu::LinearCrossEntropyForm f_;
  Dtype dtype_;
  Bytes aligned_;  // h; labels and losses are read and written one by one
  Dim block_ = 1;
  Bytes scratch_ = 0, scratch_at_ = 0, sums_at_ = 0;
  Set whole_, rest_;
};

}  // namespace

std::unique_ptr<Kernel> linear_cross_entropy(const PrepareCall& call) {
  auto kernel = std::make_unique<LinearCrossEntropyCuda>(backend_of(call), call, false);
  return kernel->prepare() ? std::move(kernel) : nullptr;
}
std::unique_ptr<Kernel> linear_cross_entropy_accumulate(const PrepareCall& call) {
  auto kernel = std::make_unique<LinearCrossEntropyCuda>(backend_of(call), call, true);
  return kernel->prepare() ? std::move(kernel) : nullptr;
}

}  // namespace pl::cuda

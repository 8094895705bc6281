// CUDA kernels of matmul, batch_matmul and linear_cross_entropy, by cuBLASLt.
#include "backend/cuda/cuda_libraries.h"
#include "op/batch_matmul.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"
#include "op/cuda/score_rows.h"
#include "op/linear_cross_entropy.h"
#include "op/matmul.h"
#include "op/matmul_fused.h"

namespace pl::cuda {
namespace {

ProductForm product_form(const MatmulForm& form, Dtype in, Dtype out) {
  return {.m = form.m,
          .n = form.n,
          .k = form.k,
          .transpose_a = form.transpose_a,
          .transpose_b = form.transpose_b,
          .in = in,
          .out = out};
}

// Where no algorithm adds the bias, a product without it: `form.bias` says which it is.
std::unique_ptr<Product> bias_if_possible(CudaBackend& backend, ProductForm& form) {
  auto product = Product::prepare(backend, form);
  if (product || !form.bias) return product;
  form.bias = false;
  return Product::prepare(backend, form);
}

// What a kernel says of itself that runs one product, if there is one.
bool runs(Kernel& kernel, const Product* product) {
  if (!product) return false;
  kernel.key = product->key();
  kernel.workspace_bytes = product->workspace_bytes();
  kernel.library = "cublasLt";
  return true;
}

class MatmulCuda final : public Kernel {
 public:
  // `onto`: the product is added to a sum, the first operand.
  MatmulCuda(CudaBackend& backend, const PrepareCall& call, const MatmulForm& form, bool onto)
      : backend_(backend), form_(form), out_(call.out[0]), onto_(onto), fused_(false) {
    if (form.bias) bias_ = call.in[2].dtype;
    footprint = static_cast<Bytes>(sizeof *this);
  }

  bool prepare(Dtype in) {
    if (form_.k == 0 || form_.m == 0 || form_.n == 0) return true;  // nothing to multiply
    ProductForm p = product_form(form_, in, out_.dtype);
    p.bias = form_.bias && bias_ == out_.dtype;
    p.onto = onto_;
    product_ = bias_if_possible(backend_, p);
    fused_ = p.bias;
    return runs(*this, product_.get());
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const void* bias = form_.bias ? in[2] : nullptr;
    const auto bytes = static_cast<size_t>(out_.bytes());
    if (onto_ && in[0] != out[0] && bytes > 0)
      cuda_check(cudaMemcpyAsync(out[0], in[0], bytes, cudaMemcpyDeviceToDevice, backend_.stream()),
                 "matmul");
    const int first = onto_ ? 1 : 0;
    if (product_)
      product_->run(in[first], in[first + 1], out[0], workspace, bias);
    else if (bytes > 0 && !onto_)
      cuda_check(cudaMemsetAsync(out[0], 0, bytes, backend_.stream()), "matmul");
    if ((bias && !fused_) || form_.relu)
      launch_bias(backend_, out_.dtype, out[0], bias_, fused_ ? nullptr : bias, form_.m, form_.n,
                  form_.relu);
  }

 private:
  CudaBackend& backend_;
  MatmulForm form_;
  Meta out_;
  Dtype bias_ = Dtype::float32;
  bool onto_;
  bool fused_;  // the library adds the bias
  std::unique_ptr<Product> product_;
};

// The product, and a matrix like it that is added, in the library's epilogue.
class MatmulAddCuda final : public Kernel {
 public:
  MatmulAddCuda(CudaBackend& backend, const PrepareCall& call, const MatmulForm& form)
      : backend_(backend), form_(form), out_(call.out[0]) {
    if (form.bias) bias_ = call.in[3].dtype;
    footprint = static_cast<Bytes>(sizeof *this);
  }
  bool prepare(Dtype in) {
    if (out_.elements() == 0 || form_.k == 0) return true;
    ProductForm p = product_form(form_, in, out_.dtype);
    p.added = true;
    p.bias = form_.bias && bias_ == out_.dtype;
    product_ = bias_if_possible(backend_, p);
    fused_ = p.bias;
    return runs(*this, product_.get());
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    const void* bias = form_.bias ? in[3] : nullptr;
    const auto bytes = static_cast<size_t>(out_.bytes());
    if (product_)
      product_->run(in[0], in[1], out[0], workspace, bias, in[2]);
    else if (bytes > 0)
      cuda_check(cudaMemcpyAsync(out[0], in[2], bytes, cudaMemcpyDeviceToDevice, backend_.stream()),
                 "matmul_add");
    if (bias && !fused_)
      launch_bias(backend_, out_.dtype, out[0], bias_, bias, form_.m, form_.n, false);
  }

 private:
  CudaBackend& backend_;
  MatmulForm form_;
  Meta out_;
  Dtype bias_ = Dtype::float32;
  bool fused_ = false;
  std::unique_ptr<Product> product_;
};

// The product times gelu's slope: in the library's epilogue, or by a kernel behind it.
class MatmulGeluGradientCuda final : public Kernel {
 public:
  MatmulGeluGradientCuda(const PrepareCall& call, const MatmulForm& form)
      : backend_(backend_of(call)), form_(form), out_(call.out[0]) {
    footprint = static_cast<Bytes>(sizeof *this);
  }
  bool prepare(const PrepareCall& call) {
    if (out_.elements() == 0 || form_.k == 0) return true;
    ProductForm p = product_form(form_, call.in[0].dtype, out_.dtype);
    p.gelu_slope = size_of(out_.dtype) == 2 && form_.n % 8 == 0;
    if (p.gelu_slope) product_ = Product::prepare(backend_, p);
    if (!product_) {
      p.gelu_slope = false;
      product_ = Product::prepare(backend_, p);
      const Metas in{out_, out_};
      const Attrs attrs{{"approximate", int64_t{1}}};
      slope_ = pointwise(PrepareCall{backend_, in, call.out, attrs}, TileOp::gelu_gradient);
      if (!product_ || !slope_) return false;
    }
    key = product_->key() + (slope_ ? "" : "+gelu");
    workspace_bytes = product_->workspace_bytes();
    if (slope_) workspace_bytes = std::max(workspace_bytes, slope_->workspace_bytes);
    library = "cublasLt";
    return true;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    if (!product_) {
      if (out_.elements() > 0)
        cuda_check(cudaMemsetAsync(out[0], 0, static_cast<size_t>(out_.bytes()), backend_.stream()),
                   "matmul_gelu_gradient");
      return;
    }
    product_->run(in[0], in[1], out[0], workspace, nullptr, in[2]);
    void* const operands[] = {in[2], out[0]};
    if (slope_) slope_->run(operands, out, workspace);
  }

 private:
  CudaBackend& backend_;
  MatmulForm form_;
  Meta out_;
  std::unique_ptr<Product> product_;
  std::unique_ptr<Kernel> slope_;  // where the library has no such epilogue
};

class BatchMatmulCuda final : public Kernel {
 public:
  BatchMatmulCuda(CudaBackend& backend, const BatchMatmulForm& form, const Meta& out)
      : backend_(backend), form_(form), out_(out) {
    footprint = static_cast<Bytes>(sizeof *this);
  }

  // b's matrices are used again for each outer index: by a step of 0, or by a call each.
  bool prepare(Dtype in) {
    const BatchMatmulForm& f = form_;
    if (out_.elements() == 0 || f.k == 0) return true;
    const bool shared = f.inner == 1;
    calls_ = shared ? 1 : f.outer;
    product_ = Product::prepare(backend_, {.m = f.m,
                                           .n = f.n,
                                           .k = f.k,
                                           .transpose_a = f.transpose_a,
                                           .transpose_b = f.transpose_b,
                                           .in = in,
                                           .out = out_.dtype,
                                           .batch = shared ? f.outer : f.inner,
                                           .a_step = f.m * f.k,
                                           .b_step = shared ? 0 : f.k * f.n,
                                           .c_step = f.m * f.n,
                                           .alignment = calls_ == 1 ? 256 : size_of(in)});
    return runs(*this, product_.get());
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const BatchMatmulForm& f = form_;
    if (!product_) {
      if (out_.elements() > 0)
        cuda_check(cudaMemsetAsync(out[0], 0, static_cast<size_t>(out_.bytes()), backend_.stream()),
                   "batch_matmul");
      return;
    }
    const int64_t size = size_of(out_.dtype);
    for (Dim o = 0; o < calls_; ++o)
      product_->run(static_cast<const char*>(in[0]) + o * f.inner * f.m * f.k * size, in[1],
                    static_cast<char*>(out[0]) + o * f.inner * f.m * f.n * size, workspace);
  }

 private:
  CudaBackend& backend_;
  BatchMatmulForm form_;
  Meta out_;
  Dim calls_ = 1;
  std::unique_ptr<Product> product_;
};

}  // namespace

std::unique_ptr<Kernel> matmul(const PrepareCall& call) {
  auto kernel =
      std::make_unique<MatmulCuda>(backend_of(call), call, matmul_form(call.in, call.attrs), false);
  return kernel->prepare(call.in[0].dtype) ? std::move(kernel) : nullptr;
}
std::unique_ptr<Kernel> matmul_accumulate(const PrepareCall& call) {
  const MatmulForm form = matmul_form({call.in[1], call.in[2]}, call.attrs);
  auto kernel = std::make_unique<MatmulCuda>(backend_of(call), call, form, true);
  return kernel->prepare(call.in[1].dtype) ? std::move(kernel) : nullptr;
}

std::unique_ptr<Kernel> matmul_add(const PrepareCall& call) {
  Metas in{call.in[0], call.in[1]};
  if (call.in.size() > 3) in.push_back(call.in[3]);
  auto kernel =
      std::make_unique<MatmulAddCuda>(backend_of(call), call, matmul_form(in, call.attrs));
  return kernel->prepare(call.in[0].dtype) ? std::move(kernel) : nullptr;
}
std::unique_ptr<Kernel> matmul_gelu_gradient(const PrepareCall& call) {
  const MatmulForm form = matmul_form({call.in[0], call.in[1]}, call.attrs);
  auto kernel = std::make_unique<MatmulGeluGradientCuda>(call, form);
  return kernel->prepare(call) ? std::move(kernel) : nullptr;
}

std::unique_ptr<Kernel> batch_matmul(const PrepareCall& call) {
  auto kernel = std::make_unique<BatchMatmulCuda>(
      backend_of(call), batch_matmul_form(call.in, call.attrs), call.out[0]);
  return kernel->prepare(call.in[0].dtype) ? std::move(kernel) : nullptr;
}

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
        dtype_(call.in[static_cast<size_t>(f_.first)].dtype) {
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

// CUDA kernels of matmul and batch_matmul, by cuBLASLt; of integers by our own.
#include "backend/cuda/cuda_libraries.h"
#include "op/batch_matmul.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"
#include "op/matmul.h"
#include "op/matmul_fused.h"

namespace pl::cuda {
namespace {

ProductForm product_form(const MatmulForm& form, Dtype in, Dtype out, Bytes alignment) {
  return {.m = form.m,
          .n = form.n,
          .k = form.k,
          .transpose_a = form.transpose_a,
          .transpose_b = form.transpose_b,
          .in = in,
          .out = out,
          .alignment = product_alignment(alignment)};
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
      : backend_(backend),
        form_(form),
        out_(call.out[0]),
        aligned_(call.alignment()),
        onto_(onto),
        fused_(false) {
    if (form.bias) bias_ = call.in[2].dtype;
    footprint = static_cast<Bytes>(sizeof *this);
  }

  bool prepare(Dtype in) {
    if (form_.k == 0 || form_.m == 0 || form_.n == 0) return true;  // nothing to multiply
    ProductForm p = product_form(form_, in, out_.dtype, aligned_);
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
  Bytes aligned_;  // all operands
  Dtype bias_ = Dtype::float32;
  bool onto_;
  bool fused_;  // the library adds the bias
  std::unique_ptr<Product> product_;
};

// The product, and a matrix like it that is added, in the library's epilogue.
class MatmulAddCuda final : public Kernel {
 public:
  MatmulAddCuda(CudaBackend& backend, const PrepareCall& call, const MatmulForm& form)
      : backend_(backend), form_(form), out_(call.out[0]), aligned_(call.alignment()) {
    if (form.bias) bias_ = call.in[3].dtype;
    footprint = static_cast<Bytes>(sizeof *this);
  }
  bool prepare(Dtype in) {
    if (out_.elements() == 0 || form_.k == 0) return true;
    ProductForm p = product_form(form_, in, out_.dtype, aligned_);
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
  Bytes aligned_;  // all operands
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
    ProductForm p = product_form(form_, call.in[0].dtype, out_.dtype, call.alignment());
    p.gelu_slope = size_of(out_.dtype) == 2 && form_.n % 8 == 0;
    if (p.gelu_slope) product_ = Product::prepare(backend_, p);
    if (!product_) {
      p.gelu_slope = false;
      product_ = Product::prepare(backend_, p);
      const Metas in{out_, out_};
      const Attrs attrs{{"approximate", int64_t{1}}};
      const Bytes aligned = call.alignment();
      const Alignments slices{{aligned, aligned}, {aligned}};
      slope_ =
          pointwise(PrepareCall{backend_, in, call.out, attrs, &slices}, TileOp::gelu_gradient);
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
  bool prepare(Dtype in, Bytes aligned) {
    const BatchMatmulForm& f = form_;
    if (out_.elements() == 0 || f.k == 0) return true;
    const bool shared = f.inner == 1;
    calls_ = shared ? 1 : f.outer;
    product_ = Product::prepare(
        backend_, {.m = f.m,
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
                   .alignment = calls_ == 1 ? product_alignment(aligned) : size_of(in)});
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
  if (!is_floating(call.in[0].dtype)) return integer_matmul(call);
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
  if (!is_floating(call.in[0].dtype)) return integer_batch_matmul(call);
  auto kernel = std::make_unique<BatchMatmulCuda>(
      backend_of(call), batch_matmul_form(call.in, call.attrs), call.out[0]);
  return kernel->prepare(call.in[0].dtype, call.alignment()) ? std::move(kernel) : nullptr;
}

}  // namespace pl::cuda

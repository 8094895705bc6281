// CPU kernels of matmul: oneDNN for float32 and bfloat16, blocks for integers; a plain loop for the
// rest, and as the reference.
#include <algorithm>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "op/integer_product.h"
#include "op/kernel.h"
#include "op/matmul.h"
#include "op/matmul_onednn.h"
#include "op/pointwise_math.h"
#include "op/relu.h"

namespace pl::cpu {
namespace {

using Form = MatmulForm;

class MatmulOnednn final : public Kernel {
 public:
  MatmulOnednn(OnednnCall call, bool bias, std::unique_ptr<Kernel> relu)
      : call_(std::move(call)), relu_(std::move(relu)) {
    a_ = call_.bind(DNNL_ARG_SRC, call_.query(dnnl_query_src_md));
    b_ = call_.bind(DNNL_ARG_WEIGHTS, call_.query(dnnl_query_weights_md, 0));
    if (bias) bias_ = call_.bind(DNNL_ARG_BIAS, call_.query(dnnl_query_weights_md, 1));
    c_ = call_.bind(DNNL_ARG_DST, call_.query(dnnl_query_dst_md));
    workspace_bytes = call_.scratchpad_bytes();
    if (workspace_bytes > 0)
      scratch_ = call_.bind(DNNL_ARG_SCRATCHPAD, call_.query(dnnl_query_scratchpad_md));
    key = call_.implementation();
    library = onednn_part("matmul", call_.query(dnnl_query_src_md));
    footprint = static_cast<Bytes>(sizeof *this) + call_.footprint();
    // Without AVX-512 the library multiplies through its gemm, which packs copies of its operands
    // on the heap, whatever scratchpad it was promised.
    if (key.find("brg") == std::string::npos)
      for (dnnl_query_t operand : {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md})
        transient += static_cast<Bytes>(dnnl_memory_desc_get_size(call_.query(operand)));
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    call_.set(a_, in[0]);
    call_.set(b_, in[1]);
    if (bias_ >= 0) call_.set(bias_, in[2]);
    call_.set(c_, out[0]);
    if (scratch_ >= 0) call_.set(scratch_, workspace);
    call_.execute();
    if (relu_) relu_->run(out, out, nullptr);
  }

 private:
  OnednnCall call_;
  std::unique_ptr<Kernel> relu_;
  int a_, b_, c_, bias_ = -1, scratch_ = -1;
};

// C[i][j] = sum over k, in order of k, starting from the bias. Rows of C are shared out to threads.
template <class T>
std::unique_ptr<Kernel> reference(const Form& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* a = static_cast<const T*>(in[0]);
    const T* b = static_cast<const T*>(in[1]);
    const T* bias = f.bias ? static_cast<const T*>(in[2]) : nullptr;
    T* c = static_cast<T*>(out[0]);
    const Dim a_row = f.transpose_a ? 1 : f.k, a_col = f.transpose_a ? f.m : 1;
    const Dim b_row = f.transpose_b ? 1 : f.n, b_col = f.transpose_b ? f.k : 1;
    parallel_ranges(threads, f.m, f.m * f.n * f.k, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        T* row = c + i * f.n;
        for (Dim j = 0; j < f.n; ++j) row[j] = bias ? bias[j] : T(0);
        for (Dim k = 0; k < f.k; ++k) {
          const T left = a[i * a_row + k * a_col];
          const T* right = b + k * b_row;
          for (Dim j = 0; j < f.n; ++j)
            row[j] =
                compute<Binary::add>(row[j], compute<Binary::multiply>(left, right[j * b_col]));
        }
        if (f.relu)
          for (Dim j = 0; j < f.n; ++j) row[j] = row[j] <= T(0) ? T(0) : row[j];
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> matmul_kernel(OnednnCall call, bool bias, std::unique_ptr<Kernel> relu) {
  return std::make_unique<MatmulOnednn>(std::move(call), bias, std::move(relu));
}

std::unique_ptr<Kernel> matmul_onednn(const PrepareCall& call) {
  const Form f = matmul_form(call.in, call.attrs);
  if (!onednn_multiplies(call.in[0].dtype) || f.m == 0 || f.n == 0 || f.k == 0) return nullptr;
  // The library's generators count in 32 bits.
  if (std::max({f.m, f.n, f.k}) > std::numeric_limits<int32_t>::max()) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  const auto type = onednn_type(call.in[0].dtype);
  OnednnDesc a = onednn_desc({f.m, f.k}, f.transpose_a ? dnnl_ba : dnnl_ab, type);
  OnednnDesc b = onednn_desc({f.k, f.n}, f.transpose_b ? dnnl_ba : dnnl_ab, type);
  OnednnDesc c = onednn_desc({f.m, f.n}, dnnl_ab, onednn_type(call.out[0].dtype));
  OnednnDesc bias;
  if (f.bias) bias = onednn_desc({1, f.n}, dnnl_ab, onednn_type(call.in[2].dtype));
  OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc desc;
  if (dnnl_matmul_primitive_desc_create(desc.out(), backend.engine(), a.get(), b.get(), bias.get(),
                                        c.get(), attr.get()) != dnnl_success)
    return nullptr;
  std::unique_ptr<Kernel> relu;
  if (f.relu) relu = relu_simd({call.backend, call.out, call.out, call.attrs});
  return matmul_kernel(OnednnCall(backend, std::move(desc)), f.bias, std::move(relu));
}

std::unique_ptr<Kernel> matmul_integers(const PrepareCall& call) {
  const Form f = matmul_form(call.in, call.attrs);
  if (is_floating(call.in[0].dtype) || f.bias || f.relu) return nullptr;
  const IntegerProduct product{call.in[0].dtype, f.m, f.n, f.k, f.transpose_a, f.transpose_b};
  const int threads = call.backend.threads();
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        product.run(threads, in[0], in[1], out[0], workspace);
      },
      product.workspace_bytes(threads));
}

std::unique_ptr<Kernel> matmul_reference(const PrepareCall& call) {
  const Form f = matmul_form(call.in, call.attrs);
  return dispatch_number(call.in[0].dtype,
                         [&]<class T>() { return reference<T>(f, call.backend.threads()); });
}

}  // namespace pl::cpu

// CPU kernels of matmul_accumulate: oneDNN's product with a sum behind it, and a plain loop.
#include <algorithm>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/matmul_accumulate.h"
#include "op/product_onednn.h"

namespace pl::cpu {
namespace {

MatmulForm form_of(const PrepareCall& call) {
  return matmul_form({call.in[1], call.in[2]}, call.attrs);
}

class AccumulateOnednn final : public Kernel {
 public:
  AccumulateOnednn(Product product, Bytes bytes, const char* part)
      : product_(std::move(product)), bytes_(bytes) {
    workspace_bytes = product_.scratch_bytes();
    key = product_.implementation();
    library = part;
    footprint = static_cast<Bytes>(sizeof *this) + product_.footprint();
    transient = product_.transient();
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    start_from(in[0], out[0], bytes_);
    product_.run(in[1], in[2], out[0], workspace);
  }

 private:
  Product product_;
  Bytes bytes_;
};

// sum[i][j] += the product, itself summed in order of k. Rows are shared out to threads.
template <class T>
std::unique_ptr<Kernel> reference(const MatmulForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* a = static_cast<const T*>(in[1]);
    const T* b = static_cast<const T*>(in[2]);
    T* sum = static_cast<T*>(out[0]);
    start_from(in[0], sum, f.m * f.n * static_cast<Bytes>(sizeof(T)));
    const Dim a_row = f.transpose_a ? 1 : f.k, a_col = f.transpose_a ? f.m : 1;
    const Dim b_row = f.transpose_b ? 1 : f.n, b_col = f.transpose_b ? f.k : 1;
    parallel_ranges(threads, f.m, f.m * f.n * f.k, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i)
        for (Dim j = 0; j < f.n; ++j) {
          T product = T(0);
          for (Dim k = 0; k < f.k; ++k)
            product += a[i * a_row + k * a_col] * b[k * b_row + j * b_col];
          sum[i * f.n + j] += product;
        }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> matmul_accumulate_onednn(const PrepareCall& call) {
  const MatmulForm f = form_of(call);
  const Dtype dtype = call.in[1].dtype;
  if (!onednn_multiplies(dtype) || call.out[0].dtype != Dtype::float32 || f.m == 0 || f.n == 0 ||
      f.k == 0)
    return nullptr;
  // The library's generators count in 32 bits.
  if (std::max({f.m, f.n, f.k}) > std::numeric_limits<int32_t>::max()) return nullptr;
  const auto type = onednn_type(dtype);
  const Operand a =
      f.transpose_a ? Operand{f.m, f.k, 1, f.m, type} : Operand{f.m, f.k, f.k, 1, type};
  const Operand b =
      f.transpose_b ? Operand{f.k, f.n, 1, f.k, type} : Operand{f.k, f.n, f.n, 1, type};
  Product product;
  if (!product.prepare(static_cast<CpuBackend&>(call.backend), a, b, {f.m, f.n, f.n, 1}, false,
                       true))
    return nullptr;
  return std::make_unique<AccumulateOnednn>(
      std::move(product), call.out[0].bytes(),
      dtype == Dtype::bfloat16 ? "matmul bfloat16" : "matmul");
}

std::unique_ptr<Kernel> matmul_accumulate_reference(const PrepareCall& call) {
  if (call.in[1].dtype != call.out[0].dtype) return nullptr;
  const MatmulForm f = form_of(call);
  return dispatch_float(call.in[1].dtype,
                        [&]<class T>() { return reference<T>(f, call.backend.threads()); });
}

}  // namespace pl::cpu

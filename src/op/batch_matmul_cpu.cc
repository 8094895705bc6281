// CPU kernels of batch_matmul: oneDNN for float32 and bfloat16, blocks for integers; a plain loop
// for the rest, and as the reference.
#include <algorithm>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "op/batch_matmul.h"
#include "op/integer_product.h"
#include "op/kernel.h"
#include "op/matmul_onednn.h"
#include "op/pointwise_math.h"

namespace pl::cpu {
namespace {

using Form = BatchMatmulForm;

// c (M, N) = op(a) x op(b), row by row, in order of k.
template <class T>
void product(const Form& f, const T* a, const T* b, T* c) {
  const Dim a_row = f.transpose_a ? 1 : f.k, a_col = f.transpose_a ? f.m : 1;
  const Dim b_row = f.transpose_b ? 1 : f.n, b_col = f.transpose_b ? f.k : 1;
  std::fill_n(c, f.m * f.n, T(0));
  for (Dim i = 0; i < f.m; ++i)
    for (Dim k = 0; k < f.k; ++k) {
      const T left = a[i * a_row + k * a_col];
      for (Dim j = 0; j < f.n; ++j)
        c[i * f.n + j] = compute<Binary::add>(
            c[i * f.n + j], compute<Binary::multiply>(left, b[k * b_row + j * b_col]));
    }
}

}  // namespace

std::unique_ptr<Kernel> batch_matmul_onednn(const PrepareCall& call) {
  const Form f = batch_matmul_form(call.in, call.attrs);
  if (!onednn_multiplies(call.in[0].dtype) || call.out[0].elements() == 0 || f.k == 0)
    return nullptr;
  // The library's generators count in 32 bits.
  if (std::max({f.outer, f.inner, f.m, f.n, f.k}) > std::numeric_limits<int32_t>::max())
    return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  const auto type = onednn_type(call.in[0].dtype);
  // A dimension of 1 is stretched, as b's first one is here.
  const bool shared = f.outer > 1;
  const Dim outer = shared ? f.outer : f.inner, inner = shared ? f.inner : 1;
  OnednnDesc a = onednn_desc({outer, inner, f.m, f.k}, f.transpose_a ? dnnl_abdc : dnnl_abcd, type);
  OnednnDesc b = onednn_desc({shared ? 1 : outer, inner, f.k, f.n},
                             f.transpose_b ? dnnl_abdc : dnnl_abcd, type);
  OnednnDesc c = onednn_desc({outer, inner, f.m, f.n}, dnnl_abcd, type);
  OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc desc;
  if (dnnl_matmul_primitive_desc_create(desc.out(), backend.engine(), a.get(), b.get(), nullptr,
                                        c.get(), attr.get()) != dnnl_success)
    return nullptr;
  return matmul_kernel(OnednnCall(backend, std::move(desc)));
}

std::unique_ptr<Kernel> batch_matmul_integers(const PrepareCall& call) {
  const Form f = batch_matmul_form(call.in, call.attrs);
  const Dtype dtype = call.in[0].dtype;
  if (is_floating(dtype)) return nullptr;
  const IntegerProduct product{
      dtype, f.m, f.n, f.k, f.transpose_a, f.transpose_b, f.outer * f.inner, f.inner};
  const int threads = call.backend.threads();
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        product.run(threads, in[0], in[1], out[0], workspace);
      },
      product.workspace_bytes(threads));
}

std::unique_ptr<Kernel> batch_matmul_reference(const PrepareCall& call) {
  return dispatch_number(call.in[0].dtype, [&]<class T>() {
    const Form f = batch_matmul_form(call.in, call.attrs);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* a = static_cast<const T*>(in[0]);
      const T* b = static_cast<const T*>(in[1]);
      T* c = static_cast<T*>(out[0]);
      const Dim products = f.outer * f.inner;
      parallel_ranges(threads, products, products * f.m * f.n * f.k, [&](Dim begin, Dim end) {
        for (Dim i = begin; i < end; ++i)
          product(f, a + i * f.m * f.k, b + i % f.inner * f.k * f.n, c + i * f.m * f.n);
      });
    });
  });
}

}  // namespace pl::cpu

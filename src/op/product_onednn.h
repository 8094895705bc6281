// One product through the library, for kernels that are made of several.
#pragma once

#include <string>

#include "backend/cpu/onednn.h"

namespace pl::cpu {

// A matrix by its strides, in elements.
struct Operand {
  Dim rows, columns, down, right;
  dnnl_data_type_t type = dnnl_f32;
  OnednnDesc desc() const {
    OnednnDesc result;
    const dnnl_dims_t dims = {rows, columns}, strides = {down, right};
    onednn_check(dnnl_memory_desc_create_with_strides(result.out(), 2, dims, type, strides),
                 "describe a matrix");
    return result;
  }
  Operand transposed() const { return {columns, rows, right, down, type}; }
  Operand as(dnnl_data_type_t other) const { return {rows, columns, down, right, other}; }
};

// c (+)= a x b [+ bias].
class Product {
 public:
  // False where the library has no such product.
  bool prepare(CpuBackend& backend, const Operand& a, const Operand& b, const Operand& c, bool bias,
               bool accumulate) {
    OnednnDesc a_desc = a.desc(), b_desc = b.desc(), c_desc = c.desc(), bias_desc;
    if (bias) bias_desc = onednn_desc({1, c.columns}, dnnl_ab);
    OnednnAttr attr = onednn_user_scratchpad();
    if (accumulate) {
      OnednnHandle<dnnl_post_ops_t, dnnl_post_ops_destroy> sum;
      onednn_check(dnnl_post_ops_create(sum.out()), "create post-ops");
      onednn_check(dnnl_post_ops_append_sum(sum.get(), 1.0f, 0, dnnl_data_type_undef),
                   "append a sum");
      onednn_check(dnnl_primitive_attr_set_post_ops(attr.get(), sum.get()), "set post-ops");
    }
    OnednnPrimitiveDesc desc;
    if (dnnl_matmul_primitive_desc_create(desc.out(), backend.engine(), a_desc.get(), b_desc.get(),
                                          bias_desc.get(), c_desc.get(),
                                          attr.get()) != dnnl_success)
      return false;
    call_ = OnednnCall(backend, std::move(desc));
    a_ = call_.bind(DNNL_ARG_SRC, a_desc.get());
    b_ = call_.bind(DNNL_ARG_WEIGHTS, b_desc.get());
    c_ = call_.bind(DNNL_ARG_DST, c_desc.get());
    if (bias) bias_ = call_.bind(DNNL_ARG_BIAS, bias_desc.get());
    if (call_.scratchpad_bytes() > 0)
      scratch_ = call_.bind(DNNL_ARG_SCRATCHPAD, call_.query(dnnl_query_scratchpad_md));
    packed_ = static_cast<Bytes>(sizeof(float)) *
              (a.rows * a.columns + b.rows * b.columns + a.rows * b.columns);
    return true;
  }

  void run(const void* a, const void* b, void* c, void* scratch, const float* bias = nullptr) {
    call_.set(a_, const_cast<void*>(a));
    call_.set(b_, const_cast<void*>(b));
    call_.set(c_, c);
    if (bias_ >= 0) call_.set(bias_, const_cast<float*>(bias));
    if (scratch_ >= 0) call_.set(scratch_, scratch);
    call_.execute();
  }

  Bytes scratch_bytes() const { return call_.scratchpad_bytes(); }
  Bytes footprint() const { return call_.footprint(); }
  std::string implementation() const { return call_.implementation(); }
  // What the library's gemm packs on the heap where there is no AVX-512.
  Bytes transient() const {
    return implementation().find("brg") == std::string::npos ? packed_ : 0;
  }

 private:
  OnednnCall call_;
  int a_ = -1, b_ = -1, c_ = -1, bias_ = -1, scratch_ = -1;
  Bytes packed_ = 0;
};

}  // namespace pl::cpu

// linear_cross_entropy for float32: oneDNN multiplies, vector code does the softmax while a block
// of logits is in the cache. The last, shorter block has primitives of its own.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/linear_cross_entropy.h"
#include "op/softmax_cross_entropy.h"

namespace pl::cpu {
namespace {

using Form = LinearCrossEntropyForm;

struct Operand {
  Dim rows, columns;
  bool transposed = false;  // stored (columns, rows)
};

// c (+)= a x b [+ bias].
class Product {
 public:
  // False where the library has no such product.
  bool prepare(CpuBackend& backend, Operand a, Operand b, bool bias, bool accumulate) {
    auto desc_of = [](const Operand& x) {
      return onednn_desc({x.rows, x.columns}, x.transposed ? dnnl_ba : dnnl_ab);
    };
    OnednnDesc a_desc = desc_of(a), b_desc = desc_of(b);
    OnednnDesc c_desc = onednn_desc({a.rows, b.columns}, dnnl_ab), bias_desc;
    if (bias) bias_desc = onednn_desc({1, b.columns}, dnnl_ab);
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

  void run(const float* a, const float* b, float* c, void* scratch, const float* bias = nullptr) {
    call_.set(a_, const_cast<float*>(a));
    call_.set(b_, const_cast<float*>(b));
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

// The products of a block of `rows`.
struct BlockProducts {
  Product logits, dw, dh;
  Dim rows = 0;

  bool prepare(CpuBackend& backend, const Form& f, Dim block) {
    rows = block;
    const bool tb = f.transpose_b, several = f.rows > f.block;
    if (!logits.prepare(backend, {rows, f.inner}, {f.inner, f.classes, tb}, f.bias >= 0, false))
      return false;
    if (f.dloss < 0) return true;
    // dW is (C, D) = dlogits^T x h, or (D, C) = h^T x dlogits.
    const bool first =
        tb ? dw.prepare(backend, {f.classes, rows, true}, {rows, f.inner}, false, several)
           : dw.prepare(backend, {f.inner, rows, true}, {rows, f.classes}, false, several);
    return first && dh.prepare(backend, {rows, f.classes}, {f.classes, f.inner, !tb}, false, false);
  }

  template <class F>
  void for_each(const Form& f, F visit) const {
    visit(logits);
    if (f.dloss < 0) return;
    visit(dw);
    visit(dh);
  }
};

class BlockedHead final : public Kernel {
 public:
  BlockedHead(const Form& form, std::vector<BlockProducts> products, int threads)
      : f_(form), products_(std::move(products)), threads_(threads) {
    key = "rows" + std::to_string(f_.block);
    footprint = static_cast<Bytes>(sizeof *this);
    Bytes scratch = 0;
    for (const BlockProducts& products : products_)
      products.for_each(f_, [&](const Product& product) {
        scratch = std::max(scratch, product.scratch_bytes());
        footprint += product.footprint();
        transient = std::max(transient, product.transient());
        key += ",";
        key += product.implementation();
      });
    const Bytes logits = products_[0].rows * f_.classes * static_cast<Bytes>(sizeof(float));
    sums_at_ = align_up(logits, kAlignment);
    const Bytes sums =
        f_.dbias < 0 ? 0 : align_up(f_.classes * static_cast<Bytes>(sizeof(double)), kAlignment);
    scratch_at_ = sums_at_ + sums;
    workspace_bytes = scratch_at_ + scratch;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    char* base = static_cast<char*>(workspace);
    double* sums = reinterpret_cast<double*>(base + sums_at_);
    if (f_.dbias >= 0) std::fill(sums, sums + f_.classes, 0.0);
    if (f_.dw >= 0 && f_.rows > f_.block) clear(static_cast<float*>(out[f_.dw]));
    size_t which = 0;
    for (Dim first = 0; first < f_.rows; first += f_.block) {
      if (f_.rows - first < products_[which].rows) ++which;
      run_block(products_[which], first, in, out, base);
    }
    if (f_.dbias < 0) return;
    float* dbias = static_cast<float*>(out[f_.dbias]);
    for (Dim c = 0; c < f_.classes; ++c) dbias[c] = static_cast<float>(sums[c]);
  }

 private:
  static constexpr Bytes kAlignment = 64;

  void clear(float* dw) const {
    const Dim count = f_.classes * f_.inner;
    parallel_ranges(threads_, count, count,
                    [&](Dim begin, Dim end) { std::fill(dw + begin, dw + end, 0.0f); });
  }

  void run_block(BlockProducts& products, Dim first, void* const* in, void* const* out,
                 char* base) {
    float* block = reinterpret_cast<float*>(base);
    const float* h = static_cast<const float*>(in[0]) + first * f_.inner;
    const float* w = static_cast<const float*>(in[1]);
    void* scratch = base + scratch_at_;
    products.logits.run(h, w, block, scratch,
                        f_.bias < 0 ? nullptr : static_cast<const float*>(in[f_.bias]));
    soften(block, first, products.rows, in, out);
    if (f_.dloss < 0) return;
    float* dw = static_cast<float*>(out[f_.dw]);
    if (f_.transpose_b)
      products.dw.run(block, h, dw, scratch);
    else
      products.dw.run(h, block, dw, scratch);
    if (f_.dbias >= 0) add_columns(block, products.rows, base);
    // May overwrite h, whose block is used up.
    products.dh.run(block, w, static_cast<float*>(out[f_.dh]) + first * f_.inner, scratch);
  }

  // Logits become dlogits (without gradients: probabilities), in place.
  void soften(float* block, Dim first, Dim rows, void* const* in, void* const* out) const {
    const Dim n = f_.classes;
    const int32_t* labels = static_cast<const int32_t*>(in[2]) + first;
    const float* dloss = f_.dloss < 0 ? nullptr : static_cast<const float*>(in[f_.dloss]) + first;
    float* loss = static_cast<float*>(out[0]) + first;
    float* correct = static_cast<float*>(out[f_.correct]) + first;
    parallel_ranges(threads_, rows, 4 * rows * n, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        float* row = block + i * n;
        loss[i] = cross_entropy_row(row, labels[i], row, n);
        correct[i] = largest_at(row, labels[i], n) ? 1.0f : 0.0f;
        if (dloss) cross_entropy_gradient_row(row, labels[i], dloss[i], row, n);
      }
    });
  }

  // In double, row by row: the order does not depend on the threads, which share out the columns.
  void add_columns(const float* block, Dim rows, char* base) const {
    double* sums = reinterpret_cast<double*>(base + sums_at_);
    const Dim n = f_.classes;
    parallel_ranges(threads_, n, rows * n, [&](Dim begin, Dim end) {
      for (Dim i = 0; i < rows; ++i)
        for (Dim c = begin; c < end; ++c) sums[c] += static_cast<double>(block[i * n + c]);
    });
  }

  Form f_;
  std::vector<BlockProducts> products_;  // of whole blocks, then of the rest
  int threads_;
  Bytes sums_at_ = 0, scratch_at_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> linear_cross_entropy_onednn(const PrepareCall& call) {
  const Form f = linear_cross_entropy_form(call);
  if (call.in[0].dtype != Dtype::float32 || f.rows == 0) return nullptr;
  // The library's generators count in 32 bits.
  if (std::max({f.rows, f.classes, f.inner}) > std::numeric_limits<int32_t>::max()) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  std::vector<BlockProducts> products;
  for (Dim rows : {std::min(f.rows, f.block), f.rows > f.block ? f.rows % f.block : 0})
    if (rows > 0 && !products.emplace_back().prepare(backend, f, rows)) return nullptr;
  return std::make_unique<BlockedHead>(f, std::move(products), call.backend.threads());
}

}  // namespace pl::cpu

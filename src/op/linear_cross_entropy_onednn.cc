// linear_cross_entropy: oneDNN multiplies, vector code does the softmax while a block of logits is
// in the cache. With bfloat16 operands logits and sums stay float32; dlogits are rounded for the
// products. The last, shorter block has primitives of its own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/linear_cross_entropy.h"
#include "op/product_onednn.h"
#include "op/softmax_cross_entropy.h"
#include "op/widen.h"

namespace pl::cpu {
namespace {

using Form = LinearCrossEntropyForm;

// The products of a block of `rows` and a piece of `classes`.
struct Products {
  Dim rows = 0, classes = 0;
  Product logits, dw, dh;

  // `type`: of h and w.
  bool prepare(CpuBackend& backend, const Form& f, dnnl_data_type_t type) {
    const Operand scores{rows, classes, classes, 1}, block = scores.as(type);
    const Operand h{rows, f.inner, f.inner, 1, type};
    const Operand w = f.transpose_b
                          ? Operand{f.inner, classes, 1, f.inner, type}
                          : Operand{f.inner, classes, f.classes, 1, type};  // (D, classes)
    if (!logits.prepare(backend, h, w, scores, f.bias >= 0, false)) return false;
    if (f.dloss < 0) return true;
    const bool add_dw = f.accumulate() || f.rows > f.block, add_dh = f.classes > f.piece;
    const bool has_dw =
        f.transpose_b
            ? dw.prepare(backend, block.transposed(), h, w.transposed().as(dnnl_f32), false, add_dw)
            : dw.prepare(backend, h.transposed(), block, w.as(dnnl_f32), false, add_dw);
    return has_dw &&
           dh.prepare(backend, block, w.transposed(), add_dh ? h.as(dnnl_f32) : h, false, add_dh);
  }

  template <class F>
  void for_each(const Form& f, F visit) const {
    visit(logits);
    if (f.dloss < 0) return;
    visit(dw);
    visit(dh);
  }
};

// `whole`, and the rest that it leaves of `total`, if any.
std::vector<Dim> cuts(Dim total, Dim whole) {
  if (total <= whole) return {total};
  if (total % whole == 0) return {whole};
  return {whole, total % whole};
}

class BlockedHead final : public Kernel {
 public:
  // `products`: for each cut of the rows each cut of the classes.
  BlockedHead(const Form& form, std::vector<Products> products, int threads, bool narrow)
      : f_(form), products_(std::move(products)), threads_(threads), narrow_(narrow) {
    key = "rows" + std::to_string(f_.block) + ",classes" + std::to_string(f_.piece);
    library = narrow_ ? "matmul bfloat16" : "matmul";
    footprint = static_cast<Bytes>(sizeof *this);
    Bytes scratch = 0;
    for (const Products& products_of_cut : products_)
      products_of_cut.for_each(f_, [&](const Product& product) {
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
    rounded_at_ = sums_at_ + sums;
    const bool rounds = narrow_ && f_.dloss >= 0;
    dh_at_ = rounded_at_ + (rounds ? align_up(logits / 2, kAlignment) : 0);
    const Bytes dh = rounds && f_.classes > f_.piece
                         ? products_[0].rows * f_.inner * static_cast<Bytes>(sizeof(float))
                         : 0;
    scratch_at_ = dh_at_ + align_up(dh, kAlignment);
    workspace_bytes = scratch_at_ + scratch;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    char* base = static_cast<char*>(workspace);
    const Dim weights = f_.classes * f_.inner;
    if (f_.accumulate())
      start_from(in[0], out[f_.dw], weights * static_cast<Bytes>(sizeof(float)));
    else if (f_.dw >= 0 && f_.rows > f_.block)
      clear(static_cast<float*>(out[f_.dw]), weights);
    in += f_.first;
    double* sums = reinterpret_cast<double*>(base + sums_at_);
    if (f_.dbias >= 0) std::fill(sums, sums + f_.classes, 0.0);
    for (Dim first = 0; first < f_.rows; first += f_.block)
      run_block({first, std::min(f_.block, f_.rows - first), in, out, base});
    if (f_.dbias < 0) return;
    float* dbias = static_cast<float*>(out[f_.dbias]);
    for (Dim c = 0; c < f_.classes; ++c) dbias[c] = static_cast<float>(sums[c]);
  }

 private:
  static constexpr Bytes kAlignment = 64;

  struct Block {
    Dim first, rows;
    void* const* in;
    void* const* out;
    char* base;  // of the workspace
    float* logits() const { return reinterpret_cast<float*>(base); }
    template <class T>
    T* at(Bytes offset) const {
      return reinterpret_cast<T*>(base + offset);
    }
  };

  void clear(float* to, Dim count) const {
    parallel_ranges(threads_, count, count,
                    [&](Dim begin, Dim end) { std::fill(to + begin, to + end, 0.0f); });
  }

  Products& products(Dim rows, Dim classes) {
    for (Products& candidate : products_)
      if (candidate.rows == rows && candidate.classes == classes) return candidate;
    return products_[0];  // unreachable: the cuts cover all blocks and pieces
  }

  // Calls body(first class, classes, the piece's logits) for each piece.
  template <class Body>
  void for_pieces(const Block& block, const Body& body) const {
    for (Dim c = 0; c < f_.classes; c += f_.piece)
      body(c, std::min(f_.piece, f_.classes - c), block.logits() + block.rows * c);
  }

  void run_block(const Block& block) {
    const Dim size = narrow_ ? sizeof(Bfloat16) : sizeof(float);  // of an element of h and w
    const char* h = static_cast<const char*>(block.in[0]) + block.first * f_.inner * size;
    const char* w = static_cast<const char*>(block.in[1]);
    const float* bias = f_.bias < 0 ? nullptr : static_cast<const float*>(block.in[f_.bias]);
    void* scratch = block.base + scratch_at_;
    const Dim step = f_.transpose_b ? f_.inner : 1;  // from a class to the next in w and dw
    for_pieces(block, [&](Dim c, Dim classes, float* logits) {
      products(block.rows, classes)
          .logits.run(h, w + c * step * size, logits, scratch, bias ? bias + c : nullptr);
    });
    soften(block);
    if (f_.dloss < 0) return;
    float* dw = static_cast<float*>(block.out[f_.dw]);
    for_pieces(block, [&](Dim c, Dim classes, const float* dlogits) {
      Product& product = products(block.rows, classes).dw;
      if (f_.transpose_b)
        product.run(factor(block, dlogits), h, dw + c * step, scratch);
      else
        product.run(h, factor(block, dlogits), dw + c * step, scratch);
      if (f_.dbias >= 0) add_columns(dlogits, block.rows, classes, block.base, c);
    });
    // May overwrite h, whose block is used up.
    char* dh = static_cast<char*>(block.out[f_.dh]) + block.first * f_.inner * size;
    const Dim count = block.rows * f_.inner;
    const bool sums = f_.classes > f_.piece;  // over pieces, in float32
    float* sum = narrow_ ? block.at<float>(dh_at_) : reinterpret_cast<float*>(dh);
    if (sums) clear(sum, count);
    for_pieces(block, [&](Dim c, Dim classes, const float* dlogits) {
      void* to = sums ? static_cast<void*>(sum) : dh;
      products(block.rows, classes)
          .dh.run(factor(block, dlogits), w + c * step * size, to, scratch);
    });
    if (sums && narrow_)
      parallel_ranges(threads_, count, count, [&](Dim begin, Dim end) {
        convert_range(sum + begin, reinterpret_cast<Bfloat16*>(dh) + begin, end - begin);
      });
  }

  // dlogits as the products read them.
  const void* factor(const Block& block, const float* dlogits) const {
    if (!narrow_) return dlogits;
    return block.at<Bfloat16>(rounded_at_) + (dlogits - block.logits());
  }

  // Logits become dlogits (without gradients: probabilities), in place.
  void soften(const Block& block) const {
    parallel_ranges(threads_, block.rows, 4 * block.rows * f_.classes, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) soften_row(block, i);
    });
  }

  void soften_row(const Block& block, Dim i) const {
    const Dim at = block.first + i, label = static_cast<const int32_t*>(block.in[2])[at];
    const bool known = label >= 0 && label < f_.classes;
    float* of_label = nullptr;
    float largest = -std::numeric_limits<float>::infinity();
    for_pieces(block, [&](Dim c, Dim classes, float* logits) {
      float* row = logits + i * classes;
      const float here = largest_of_piece(row, classes);
      largest = here > largest ? here : largest;
      if (known && c <= label && label < c + classes) of_label = row + (label - c);
    });
    const double logit = known ? static_cast<double>(*of_label) : 0;
    double sum = 0;
    for_pieces(block, [&](Dim, Dim classes, float* logits) {
      float* row = logits + i * classes;
      sum += exp_of_piece(row, largest, row, classes);
    });
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const double log_sum = static_cast<double>(largest) + std::log(sum);
    static_cast<float*>(block.out[0])[at] = known ? static_cast<float>(log_sum - logit) : kNan;
    for_pieces(block, [&](Dim, Dim classes, float* logits) {
      float* row = logits + i * classes;
      scale_piece(row, static_cast<float>(1 / sum), row, classes);
    });
    static_cast<float*>(block.out[f_.correct])[at] =
        known && largest_at(block, i, label, *of_label) ? 1.0f : 0.0f;
    if (f_.dloss < 0) return;
    const float dloss = static_cast<const float*>(block.in[f_.dloss])[at];
    const float of_row = known ? dloss : kNan;
    if (known) *of_label -= 1.0f;
    for_pieces(block, [&](Dim, Dim classes, float* logits) {
      float* row = logits + i * classes;
      scale_piece(row, of_row, row, classes);
      if (!narrow_) return;
      convert_range(row, block.at<Bfloat16>(rounded_at_) + (row - block.logits()), classes);
    });
  }

  // Whether the first largest of row i is `value`, at the label. A softmax is all NaN or has none:
  // then the first element counts as the largest.
  bool largest_at(const Block& block, Dim i, Dim label, float value) const {
    bool result = true;
    for_pieces(block, [&](Dim c, Dim classes, const float* probs) {
      if (!result) return;
      const float* row = probs + i * classes;
      const Dim before = std::clamp<Dim>(label - c, 0, classes);
      const Dim behind = std::clamp<Dim>(label + 1 - c, 0, classes);
      result =
          piece_below(row, value, before) && !piece_exceeds(row + behind, value, classes - behind);
    });
    return result;
  }

  // In double, row by row: the order does not depend on the threads, which share out the columns.
  void add_columns(const float* dlogits, Dim rows, Dim classes, char* base, Dim c) const {
    double* sums = reinterpret_cast<double*>(base + sums_at_) + c;
    parallel_ranges(threads_, classes, rows * classes, [&](Dim begin, Dim end) {
      for (Dim i = 0; i < rows; ++i)
        for (Dim k = begin; k < end; ++k) sums[k] += static_cast<double>(dlogits[i * classes + k]);
    });
  }

  Form f_;
  std::vector<Products> products_;
  int threads_;
  bool narrow_;  // h, w and dh are bfloat16
  Bytes sums_at_ = 0, rounded_at_ = 0, dh_at_ = 0, scratch_at_ = 0;
};

std::unique_ptr<Kernel> blocked_head(const PrepareCall& call, const Form& f) {
  const Dtype dtype = call.in[static_cast<size_t>(f.first)].dtype;
  if (!onednn_multiplies(dtype) || f.rows == 0) return nullptr;
  // The library's generators count in 32 bits.
  if (std::max({f.rows, f.classes, f.inner}) > std::numeric_limits<int32_t>::max()) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  std::vector<Products> products;
  for (Dim rows : cuts(f.rows, f.block))
    for (Dim classes : cuts(f.classes, f.piece)) {
      products.push_back({.rows = rows, .classes = classes});
      if (!products.back().prepare(backend, f, onednn_type(dtype))) return nullptr;
    }
  return std::make_unique<BlockedHead>(f, std::move(products), call.backend.threads(),
                                       dtype == Dtype::bfloat16);
}

}  // namespace

std::unique_ptr<Kernel> linear_cross_entropy_onednn(const PrepareCall& call) {
  return blocked_head(call, linear_cross_entropy_form(call));
}

std::unique_ptr<Kernel> linear_cross_entropy_accumulate_onednn(const PrepareCall& call) {
  return blocked_head(call, linear_cross_entropy_form(call, true));
}

}  // namespace pl::cpu

// Reference kernel of linear_cross_entropy: plain loops over blocks of rows, so that float64 too
// does without whole logits. Threads share out the rows of a block, then the rows of dW.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/linear_cross_entropy.h"

namespace pl::cpu {
namespace {

using Form = LinearCrossEntropyForm;

template <class T>
class Reference {
 public:
  Reference(const Form& form, void* const* in, void* const* out, void* workspace)
      : f_(form),
        sum_(in[0]),
        h_(static_cast<const T*>(in[f_.first])),
        w_(static_cast<const T*>(in[f_.first + 1])),
        labels_(static_cast<const int32_t*>(in[f_.first + 2])),
        bias_(f_.bias < 0 ? nullptr : static_cast<const T*>(in[f_.first + f_.bias])),
        dloss_(f_.dloss < 0 ? nullptr : static_cast<const T*>(in[f_.first + f_.dloss])),
        loss_(static_cast<T*>(out[0])),
        dh_(f_.dh < 0 ? nullptr : static_cast<T*>(out[f_.dh])),
        dw_(f_.dw < 0 ? nullptr : static_cast<T*>(out[f_.dw])),
        dbias_(f_.dbias < 0 ? nullptr : static_cast<T*>(out[f_.dbias])),
        correct_(static_cast<float*>(out[f_.correct])),
        block_(static_cast<T*>(workspace)) {}

  void run(int threads) {
    const Dim n = f_.classes, weights = n * f_.inner;
    if (f_.accumulate())
      start_from(sum_, dw_, weights * static_cast<Bytes>(sizeof(T)));
    else if (dw_)
      std::fill(dw_, dw_ + weights, T(0));
    if (dbias_) std::fill(dbias_, dbias_ + n, T(0));
    for (Dim first = 0; first < f_.rows; first += f_.block) {
      const Dim count = std::min(f_.block, f_.rows - first);
      parallel_ranges(threads, count, count * weights, [&](Dim begin, Dim end) {
        for (Dim i = begin; i < end; ++i) forward_row(first + i, block_ + i * n);
      });
      if (!dw_) continue;
      const Dim lines = f_.transpose_b ? n : f_.inner;
      parallel_ranges(threads, lines, count * weights, [&](Dim begin, Dim end) {
        for (Dim line = begin; line < end; ++line) add_to_dw(line, first, count);
      });
      if (dbias_)
        for (Dim i = 0; i < count; ++i)
          for (Dim c = 0; c < n; ++c) dbias_[c] += block_[i * n + c];
      parallel_ranges(threads, count, count * weights, [&](Dim begin, Dim end) {
        for (Dim i = begin; i < end; ++i)
          backward_row(block_ + i * n, dh_ + (first + i) * f_.inner);
      });
    }
  }

 private:
  // h's row times w plus bias, summed in order of k.
  void logits_row(const T* h, T* row) const {
    const Dim n = f_.classes, d = f_.inner;
    for (Dim c = 0; c < n; ++c) row[c] = bias_ ? bias_[c] : T(0);
    if (f_.transpose_b) {
      for (Dim c = 0; c < n; ++c)
        for (Dim k = 0; k < d; ++k) row[c] += h[k] * w_[c * d + k];
    } else {
      for (Dim k = 0; k < d; ++k)
        for (Dim c = 0; c < n; ++c) row[c] += h[k] * w_[k * n + c];
    }
  }

  // Logits, their softmax, loss, accuracy, and dlogits where they are wanted, all in `row`.
  void forward_row(Dim i, T* row) const {
    const Dim n = f_.classes, label = labels_[i];
    logits_row(h_ + i * f_.inner, row);
    const bool known = label >= 0 && label < n;
    const double of_label = known ? static_cast<double>(row[label]) : 0;
    T largest = row[0];
    for (Dim c = 1; c < n; ++c) largest = row[c] > largest ? row[c] : largest;
    double sum = 0;
    for (Dim c = 0; c < n; ++c) {
      row[c] = std::exp(row[c] - largest);
      sum += static_cast<double>(row[c]);
    }
    const T scale = static_cast<T>(1 / sum), nan = std::numeric_limits<T>::quiet_NaN();
    Dim best = 0;
    for (Dim c = 0; c < n; ++c) {
      row[c] *= scale;
      if (row[c] > row[best]) best = c;
    }
    loss_[i] =
        known ? static_cast<T>(static_cast<double>(largest) + std::log(sum) - of_label) : nan;
    correct_[i] = best == label ? 1.0f : 0.0f;
    if (!dloss_) return;
    const T of_row = known ? dloss_[i] : nan;
    if (known) row[label] -= T(1);
    for (Dim c = 0; c < n; ++c) row[c] *= of_row;
  }

  void add_to_dw(Dim line, Dim first, Dim count) const {
    const Dim n = f_.classes, d = f_.inner;
    for (Dim i = 0; i < count; ++i) {
      const T *dlogits = block_ + i * n, *h = h_ + (first + i) * d;
      if (f_.transpose_b)
        for (Dim k = 0; k < d; ++k) dw_[line * d + k] += dlogits[line] * h[k];
      else
        for (Dim c = 0; c < n; ++c) dw_[line * n + c] += h[line] * dlogits[c];
    }
  }

  void backward_row(const T* dlogits, T* dh) const {
    const Dim n = f_.classes, d = f_.inner;
    for (Dim k = 0; k < d; ++k) dh[k] = T(0);
    if (f_.transpose_b) {
      for (Dim c = 0; c < n; ++c)
        for (Dim k = 0; k < d; ++k) dh[k] += dlogits[c] * w_[c * d + k];
    } else {
      for (Dim k = 0; k < d; ++k)
        for (Dim c = 0; c < n; ++c) dh[k] += dlogits[c] * w_[k * n + c];
    }
  }

  const Form& f_;
  const void* sum_;
  const T *h_, *w_;
  const int32_t* labels_;
  const T *bias_, *dloss_;
  T *loss_, *dh_, *dw_, *dbias_;
  float* correct_;
  T* block_;
};

std::unique_ptr<Kernel> reference(const PrepareCall& call, const Form& form) {
  const int threads = call.backend.threads();
  return dispatch_float(call.in[static_cast<size_t>(form.first)].dtype, [&]<class T>() {
    auto kernel = make_kernel(
        [form, threads](void* const* in, void* const* out, void* workspace) {
          Reference<T>(form, in, out, workspace).run(threads);
        },
        std::min(form.rows, form.block) * form.classes * static_cast<Bytes>(sizeof(T)));
    kernel->key = "rows" + std::to_string(form.block);
    return kernel;
  });
}

}  // namespace

std::unique_ptr<Kernel> linear_cross_entropy_reference(const PrepareCall& call) {
  return reference(call, linear_cross_entropy_form(call));
}

std::unique_ptr<Kernel> linear_cross_entropy_accumulate_reference(const PrepareCall& call) {
  return reference(call, linear_cross_entropy_form(call, true));
}

}  // namespace pl::cpu

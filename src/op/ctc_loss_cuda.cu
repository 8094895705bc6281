// CUDA kernels of ctc_loss: a thread for each sample, in logarithms and float64, as the CPU's.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

struct CtcForm {
  int64_t batch, steps, classes, labels;
  __host__ __device__ int64_t states() const { return 2 * labels + 1; }
  // float64 elements of a sample: labels, log of each step's sum, rows of states, two of classes.
  int64_t scratch(int64_t rows) const { return labels + steps + rows * states() + 2 * classes; }
};

__device__ double log_add_of(double a, double b) {
  const double high = fmax(a, b), low = fmin(a, b);
  return high == -infinity(0.0) ? high : high + log1p(exp(low - high));
}

template <class T>
struct CtcSpelling {
  const T* logits;
  double *spelled, *log_sums;
  int64_t steps, classes, count = 0;
  bool known = true;

  __device__ CtcSpelling(const CtcForm& f, const T* x, const int32_t* labels, double* space)
      : logits(x), spelled(space), log_sums(space + f.labels), steps(f.steps), classes(f.classes) {
    for (int64_t l = 0; l < f.labels; ++l) {
      known = known && labels[l] >= 0 && labels[l] < classes;
      if (labels[l] != 0) spelled[count++] = labels[l];
    }
    for (int64_t t = 0; t < steps; ++t) {
      const T* row = logits + t * classes;
      double most = static_cast<double>(widen(row[0])), sum = 0;
      for (int64_t c = 1; c < classes; ++c) {
        const auto v = static_cast<double>(widen(row[c]));
        if (most < v) most = v;
      }
      for (int64_t c = 0; c < classes; ++c) sum += exp(static_cast<double>(widen(row[c])) - most);
      log_sums[t] = most + log(sum);
    }
  }
  __device__ int64_t states() const { return 2 * count + 1; }
  __device__ int64_t class_of(int64_t s) const {
    return s % 2 == 0 ? 0 : static_cast<int64_t>(spelled[s / 2]);
  }
  __device__ double log_probability(int64_t t, int64_t c) const {
    return static_cast<double>(widen(logits[t * classes + c])) - log_sums[t];
  }
  __device__ bool may_skip(int64_t s) const {
    return s % 2 == 1 && s >= 3 && spelled[s / 2] != spelled[s / 2 - 1];
  }
  __device__ void ahead(int64_t t, const double* before, double* now) const {
    for (int64_t s = 0; s < states(); ++s) {
      double sum = t == 0 ? (s < 2 ? 0.0 : -infinity(0.0)) : before[s];
      if (t > 0 && s >= 1) sum = log_add_of(sum, before[s - 1]);
      if (t > 0 && may_skip(s)) sum = log_add_of(sum, before[s - 2]);
      now[s] = sum + log_probability(t, class_of(s));
    }
  }
  __device__ double log_likelihood(const double* last) const {
    if (steps == 0) return count == 0 ? 0 : -infinity(0.0);
    return states() == 1 ? last[0] : log_add_of(last[states() - 1], last[states() - 2]);
  }
  __device__ void back(int64_t t, const double* next, double* now) const {
    for (int64_t s = 0; s < states(); ++s) {
      if (t + 1 == steps) {
        now[s] = s + 2 >= states() ? 0 : -infinity(0.0);
        continue;
      }
      auto by = [&](int64_t to) { return next[to] + log_probability(t + 1, class_of(to)); };
      double sum = by(s);
      if (s + 1 < states()) sum = log_add_of(sum, by(s + 1));
      if (s + 2 < states() && may_skip(s + 2)) sum = log_add_of(sum, by(s + 2));
      now[s] = sum;
    }
  }
};

template <class T>
__global__ void ctc_samples(CtcForm f, const T* logits, const int32_t* labels, T* loss,
                            double* space, int64_t scratch) {
  for (int64_t b = thread_index(); b < f.batch; b += thread_count()) {
    double* own = space + b * scratch;
    const CtcSpelling<T> x(f, logits + b * f.steps * f.classes, labels + b * f.labels, own);
    double result = nan_of(0.0);
    if (x.known) {
      double *before = own + f.labels + f.steps, *now = before + f.states();
      for (int64_t t = 0; t < x.steps; ++t) {
        x.ahead(t, before, now);
        double* other = before;
        before = now;
        now = other;
      }
      result = -x.log_likelihood(before);
    }
    loss[b] = static_cast<T>(static_cast<Wide<T>>(result));
  }
}

// Steps backwards: dlogits may lie where the logits are, and a step reads those of the next one.
template <class T>
__global__ void ctc_gradient_samples(CtcForm f, const T* logits, const int32_t* labels,
                                     const T* dloss, T* dlogits, double* space, int64_t scratch) {
  for (int64_t b = thread_index(); b < f.batch; b += thread_count()) {
    double* own = space + b * scratch;
    T* to = dlogits + b * f.steps * f.classes;
    const CtcSpelling<T> x(f, logits + b * f.steps * f.classes, labels + b * f.labels, own);
    if (!x.known) {
      for (int64_t i = 0; i < f.steps * f.classes; ++i) to[i] = static_cast<T>(nan_of(Wide<T>(0)));
      continue;
    }
    const int64_t states = f.states();
    double* rows = own + f.labels + f.steps;
    double *next = rows + f.steps * states, *now = next + states, *spelled = now + states;
    double* later = spelled + f.classes;
    const double* before = rows;
    for (int64_t t = 0; t < x.steps; ++t) {
      x.ahead(t, before, rows + t * states);
      before = rows + t * states;
    }
    const double total = x.log_likelihood(before);
    const auto slope = static_cast<double>(widen(dloss[b]));
    auto flush = [&](int64_t t) {
      for (int64_t c = 0; c < f.classes; ++c)
        to[t * f.classes + c] = static_cast<T>(static_cast<Wide<T>>(later[c]));
    };
    for (int64_t t = x.steps - 1; t >= 0; --t) {
      x.back(t, next, now);
      for (int64_t c = 0; c < f.classes; ++c) spelled[c] = 0;
      for (int64_t s = 0; s < x.states(); ++s)
        spelled[x.class_of(s)] += exp(rows[t * states + s] + now[s] - total);
      if (t + 1 < x.steps) flush(t + 1);
      for (int64_t c = 0; c < f.classes; ++c)
        later[c] = slope * (exp(x.log_probability(t, c)) - spelled[c]);
      double* other = next;
      next = now;
      now = other;
    }
    if (x.steps > 0) flush(0);
  }
}

CtcForm ctc_form(const PrepareCall& call) {
  const Shape& s = call.in[0].shape;
  return {s[0], s[1], s[2], call.in[1].shape[1]};
}

}  // namespace

std::unique_ptr<Kernel> ctc_loss(const PrepareCall& call) {
  const CtcForm f = ctc_form(call);
  const int64_t scratch = f.batch == 0 ? 0 : f.scratch(2);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          if (f.batch > 0)
            ctc_samples<T><<<launch.blocks(f.batch, 32), 32, 0, launch.stream>>>(
                f, input<T>(in, 0), input<int32_t>(in, 1), output<T>(out, 0),
                reinterpret_cast<double*>(workspace), scratch);
        },
        f.batch * scratch * static_cast<Bytes>(sizeof(double)));
  });
}
std::unique_ptr<Kernel> ctc_loss_gradient(const PrepareCall& call) {
  const CtcForm f = ctc_form(call);
  const int64_t scratch = f.batch == 0 ? 0 : f.scratch(f.steps + 2);
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          if (f.batch > 0)
            ctc_gradient_samples<T><<<launch.blocks(f.batch, 32), 32, 0, launch.stream>>>(
                f, input<T>(in, 0), input<int32_t>(in, 1), input<T>(in, 2), output<T>(out, 0),
                reinterpret_cast<double*>(workspace), scratch);
        },
        f.batch * scratch * static_cast<Bytes>(sizeof(double)));
  });
}

}  // namespace pl::cuda

// ctc_loss and its gradient: the forward-backward algorithm over 2 L + 1 states, a blank around
// each label, in logarithms and float64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/ctc_loss.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return high == kNever ? kNever : high + std::log1p(std::exp(low - high));
}

struct Form {
  Dim batch, steps, classes, labels;
  Dim states() const { return 2 * labels + 1; }
  // float64 elements of a thread: labels, log of each step's sum, alphas of `rows` steps.
  Dim scratch(Dim rows) const { return labels + steps + rows * states(); }
};

// One sample: its labels without padding, and probabilities of steps in logarithms.
template <class T>
struct Spelling {
  const T* logits;   // (T, C)
  double* spelled;   // (count)
  double* log_sums;  // (T)
  Dim steps, classes, count = 0;
  bool known = true;  // all labels are classes

  Spelling(const Form& f, const T* x, const int32_t* labels, double* space)
      : logits(x), spelled(space), log_sums(space + f.labels), steps(f.steps), classes(f.classes) {
    for (Dim l = 0; l < f.labels; ++l) {
      known = known && labels[l] >= 0 && labels[l] < classes;
      if (labels[l] != 0) spelled[count++] = labels[l];
    }
    for (Dim t = 0; t < steps; ++t) {
      const T* row = logits + t * classes;
      const double most = static_cast<double>(*std::max_element(row, row + classes));
      double sum = 0;
      for (Dim c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - most);
      log_sums[t] = most + std::log(sum);
    }
  }
  Dim states() const { return 2 * count + 1; }
  Dim class_of(Dim s) const { return s % 2 == 0 ? 0 : static_cast<Dim>(spelled[s / 2]); }
  double log_probability(Dim t, Dim c) const {
    return static_cast<double>(logits[t * classes + c]) - log_sums[t];
  }
  // A state may follow the one two before it, past a blank, unless both spell one class.
  bool may_skip(Dim s) const {
    return s % 2 == 1 && s >= 3 && spelled[s / 2] != spelled[s / 2 - 1];
  }

  // How likely the steps up to t end in each state.
  void ahead(Dim t, const double* before, double* now) const {
    for (Dim s = 0; s < states(); ++s) {
      double sum = t == 0 ? (s < 2 ? 0 : kNever) : before[s];
      if (t > 0 && s >= 1) sum = log_add(sum, before[s - 1]);
      if (t > 0 && may_skip(s)) sum = log_add(sum, before[s - 2]);
      now[s] = sum + log_probability(t, class_of(s));
    }
  }
  double log_likelihood(const double* last) const {
    if (steps == 0) return count == 0 ? 0 : kNever;
    return states() == 1 ? last[0] : log_add(last[states() - 1], last[states() - 2]);
  }
  // How likely the steps behind t follow each state of t; `next` are those of t + 1.
  void back(Dim t, const double* next, double* now) const {
    for (Dim s = 0; s < states(); ++s) {
      if (t + 1 == steps) {
        now[s] = s + 2 >= states() ? 0 : kNever;
        continue;
      }
      auto by = [&](Dim to) { return next[to] + log_probability(t + 1, class_of(to)); };
      double sum = by(s);
      if (s + 1 < states()) sum = log_add(sum, by(s + 1));
      if (s + 2 < states() && may_skip(s + 2)) sum = log_add(sum, by(s + 2));
      now[s] = sum;
    }
  }
};

// Calls body(sample, its scratch behind the spelling) for each sample.
template <class T, class Body>
std::unique_ptr<Kernel> by_sample(const Form& f, int threads, Dim rows, Body body) {
  const Dim scratch =
      f.batch == 0 ? 0 : f.scratch(rows);  // dimensions may be large without samples
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const Dim work = f.batch * f.steps * (f.classes + f.states()) * 8;
        parallel_ranges(threads, f.batch, work, [&](Dim begin, Dim end) {
          double* space = static_cast<double*>(workspace) + omp_get_thread_num() * scratch;
          for (Dim b = begin; b < end; ++b) {
            const Spelling<T> spelling(f, static_cast<const T*>(in[0]) + b * f.steps * f.classes,
                                       static_cast<const int32_t*>(in[1]) + b * f.labels, space);
            body(spelling, in, out, b, space + f.labels + f.steps);
          }
        });
      },
      threads * scratch * static_cast<Bytes>(sizeof(double)));
}

template <class T>
std::unique_ptr<Kernel> forward(const Form& f, int threads) {
  return by_sample<T>(
      f, threads, 2,
      [=](const Spelling<T>& x, void* const*, void* const* out, Dim b, double* rows) {
        double loss = std::numeric_limits<double>::quiet_NaN();
        if (x.known) {
          double *before = rows, *now = rows + f.states();
          for (Dim t = 0; t < x.steps; ++t) {
            x.ahead(t, before, now);
            std::swap(before, now);
          }
          loss = -x.log_likelihood(before);
        }
        static_cast<T*>(out[0])[b] = static_cast<T>(loss);
      });
}

// Steps backwards: dlogits may lie where the logits are, and a step reads those of the next one.
template <class T>
void gradient_of(const Form& f, const Spelling<T>& x, double dloss, double* rows, T* to) {
  const Dim states = f.states();
  double *next = rows + f.steps * states, *now = next + states, *spelled = now + states;
  const double* before = rows;
  for (Dim t = 0; t < x.steps; ++t) {
    x.ahead(t, before, rows + t * states);
    before = rows + t * states;
  }
  const double total = x.log_likelihood(before);
  double* later = spelled + f.classes;  // the step behind, which `to` replaces late
  for (Dim t = x.steps - 1; t >= 0; --t) {
    x.back(t, next, now);
    std::fill(spelled, spelled + f.classes, 0.0);
    for (Dim s = 0; s < x.states(); ++s)
      spelled[x.class_of(s)] += std::exp(rows[t * states + s] + now[s] - total);
    if (t + 1 < x.steps)
      for (Dim c = 0; c < f.classes; ++c) to[(t + 1) * f.classes + c] = static_cast<T>(later[c]);
    for (Dim c = 0; c < f.classes; ++c)
      later[c] = dloss * (std::exp(x.log_probability(t, c)) - spelled[c]);
    std::swap(next, now);
  }
  for (Dim c = 0; c < f.classes && x.steps > 0; ++c) to[c] = static_cast<T>(later[c]);
}

template <class T>
std::unique_ptr<Kernel> backward(const Form& f, int threads) {
  // Rows that hold two of classes; without steps these may be many.
  const Dim extra = f.steps == 0 ? 0 : (2 * f.classes + f.states() - 1) / f.states();
  return by_sample<T>(
      f, threads, f.steps + 2 + extra,
      [=](const Spelling<T>& x, void* const* in, void* const* out, Dim b, double* rows) {
        T* to = static_cast<T*>(out[0]) + b * f.steps * f.classes;
        const auto dloss = static_cast<double>(static_cast<const T*>(in[2])[b]);
        if (x.known)
          gradient_of(f, x, dloss, rows, to);
        else
          std::fill(to, to + f.steps * f.classes, std::numeric_limits<T>::quiet_NaN());
      });
}

Form form_of(const PrepareCall& call) {
  const Shape& s = call.in[0].shape;
  return {s[0], s[1], s[2], call.in[1].shape[1]};
}

}  // namespace

std::unique_ptr<Kernel> ctc_loss_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return forward<T>(form_of(call), call.backend.threads());
  });
}

std::unique_ptr<Kernel> ctc_loss_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return backward<T>(form_of(call), call.backend.threads());
  });
}

}  // namespace pl::cpu

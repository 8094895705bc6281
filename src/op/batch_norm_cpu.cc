// Reference kernels of batch_norm and its gradients; sums run in float64, one channel after another
// in the order of its rows. All sums are complete before the first element is written, so that an
// output may lie on an operand.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/batch_norm.h"
#include "op/batch_norm_gradient.h"
#include "op/channels.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// x as a matrix of pixels of all samples.
struct Form {
  Dim rows, channels;
  int threads;
};

Form form_of(const PrepareCall& call) {
  const Dim channels = call.in[0].shape.back();
  return {call.in[0].elements() / channels, channels, call.backend.threads()};
}

template <class Body>
void each_channel(const Form& f, const Body& body) {
  parallel_ranges(f.threads, f.channels, f.rows * f.channels * 4, [&](Dim begin, Dim end) {
    for (Dim c = begin; c < end; ++c) body(c);
  });
}

template <class T>
void find_moments(const Form& f, const T* x, T* mean, T* variance) {
  each_channel(f, [&](Dim c) {
    double sum = 0, squares = 0;
    for (Dim r = 0; r < f.rows; ++r) sum += static_cast<double>(x[r * f.channels + c]);
    const double average = sum / static_cast<double>(f.rows);
    for (Dim r = 0; r < f.rows; ++r) {
      const double apart = static_cast<double>(x[r * f.channels + c]) - average;
      squares += apart * apart;
    }
    mean[c] = static_cast<T>(average);
    variance[c] = static_cast<T>(squares / static_cast<double>(f.rows));
  });
}

template <class T>
T inverse_of(T variance, double epsilon) {
  return T(1) / std::sqrt(variance + static_cast<T>(epsilon));
}

struct Behind {
  bool relu = false;
  double most = 0;  // NaN: no bound
};

// `added` may be null.
template <class T>
void normalise(const Form& f, const T* x, const T* mean, const T* variance, const T* gamma,
               const T* beta, const T* added, T* y, double epsilon, Behind behind) {
  const T most = static_cast<T>(behind.most);
  each_channel(f, [&](Dim c) {
    const T factor = gamma[c] * inverse_of(variance[c], epsilon);
    for (Dim at = c; at < f.rows * f.channels; at += f.channels) {
      T value = (x[at] - mean[c]) * factor + beta[c];
      if (added) value += added[at];
      if (behind.relu) value = value <= T(0) ? T(0) : value >= most ? most : value;
      y[at] = value;
    }
  });
}

template <class T>
struct Operands {
  const T *x, *mean, *variance, *gamma, *dy;
  const T* beta = nullptr;  // where the sign is that of x normalised
  const T* y = nullptr;     // where the sign is y's
  T *dx, *dgamma, *dbeta;
  T* masked = nullptr;
  T most;
};

template <class T>
void gradient_channel(const Form& f, const Operands<T>& o, double epsilon, Dim c) {
  const T inverse = inverse_of(o.variance[c], epsilon), factor = o.gamma[c] * inverse;
  const Dim end = f.rows * f.channels;
  auto masked = [&](Dim at) {
    if (!o.beta && !o.y) return o.dy[at];
    const T value = o.y ? o.y[at] : (o.x[at] - o.mean[c]) * factor + o.beta[c];
    return value > T(0) && !(value >= o.most) ? o.dy[at] : T(0);
  };
  double sum = 0, along = 0;
  for (Dim at = c; at < end; at += f.channels) {
    const T g = masked(at);
    sum += static_cast<double>(g);
    along += static_cast<double>(g) * static_cast<double>(o.x[at] - o.mean[c]);
    if (o.masked) o.masked[at] = g;
  }
  const double rows = static_cast<double>(f.rows), r = static_cast<double>(inverse);
  const T flat = static_cast<T>(sum / rows), slope = static_cast<T>(along * r * r / rows);
  for (Dim at = c; at < end; at += f.channels) {
    const T g = o.masked ? o.masked[at] : masked(at);
    o.dx[at] = factor * (g - flat - (o.x[at] - o.mean[c]) * slope);
  }
  o.dgamma[c] = static_cast<T>(along * r);
  o.dbeta[c] = static_cast<T>(sum);
}

std::unique_ptr<Kernel> prepare_gradient(const PrepareCall& call, SignOf sign) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const double epsilon = call.attrs.real("epsilon");
    const T most = static_cast<T>(clip_of(call.attrs));
    return make_kernel([=](void* const* in, void* const* out, void*) {
      auto input = [&](int i) { return static_cast<const T*>(in[i]); };
      auto output = [&](int i) { return static_cast<T*>(out[i]); };
      const Operands<T> operands{.x = input(0),
                                 .mean = input(1),
                                 .variance = input(2),
                                 .gamma = input(3),
                                 .dy = input(4),
                                 .beta = sign == SignOf::x ? input(5) : nullptr,
                                 .y = sign == SignOf::y ? input(5) : nullptr,
                                 .dx = output(0),
                                 .dgamma = output(1),
                                 .dbeta = output(2),
                                 .masked = sign == SignOf::y ? output(3) : nullptr,
                                 .most = most};
      each_channel(f, [&](Dim c) { gradient_channel(f, operands, epsilon, c); });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> batch_moments_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    return make_kernel([=](void* const* in, void* const* out, void*) {
      find_moments(f, static_cast<const T*>(in[0]), static_cast<T*>(out[0]),
                   static_cast<T*>(out[1]));
    });
  });
}

std::unique_ptr<Kernel> batch_norm_apply_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const double epsilon = call.attrs.real("epsilon");
    const Behind behind{call.attrs.has("activation"), clip_of(call.attrs)};
    const bool adds = call.in.size() > 5;
    return make_kernel([=](void* const* in, void* const* out, void*) {
      auto input = [&](int i) { return static_cast<const T*>(in[i]); };
      normalise(f, input(0), input(1), input(2), input(3), input(4), adds ? input(5) : nullptr,
                static_cast<T*>(out[0]), epsilon, behind);
    });
  });
}

std::unique_ptr<Kernel> batch_norm_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const double epsilon = call.attrs.real("epsilon");
    return make_kernel([=](void* const* in, void* const* out, void*) {
      auto input = [&](int i) { return static_cast<const T*>(in[i]); };
      auto output = [&](int i) { return static_cast<T*>(out[i]); };
      find_moments(f, input(0), output(1), output(2));
      normalise<T>(f, input(0), output(1), output(2), input(1), input(2), nullptr, output(0),
                   epsilon, {});
    });
  });
}

std::unique_ptr<Kernel> batch_norm_gradient_reference(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::none);
}
std::unique_ptr<Kernel> batch_norm_relu_gradient_reference(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::x);
}
std::unique_ptr<Kernel> batch_norm_add_relu_gradient_reference(const PrepareCall& call) {
  return prepare_gradient(call, SignOf::y);
}

}  // namespace pl::cpu

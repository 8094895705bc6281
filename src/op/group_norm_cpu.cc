// Reference kernels of group_norm; sums run in float64. A group is summed to the end before its
// first element is written, so that an output may lie on x or dy.
#include "op/group_norm.h"

#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// body(element, channel) for the elements of a group.
template <class Body>
void each_of_group(const GroupNormForm& f, Dim group, const Body& body) {
  const Dim first = group % f.groups * f.each;
  for (Dim p = 0; p < f.positions; ++p)
    for (Dim c = first; c < first + f.each; ++c)
      body((group / f.groups * f.positions + p) * f.channels + c, c);
}

}  // namespace

std::unique_ptr<Kernel> group_norm_reference(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.out[1].shape[1]);
  const int threads = call.backend.threads();
  const double epsilon = call.attrs.real("epsilon"), count = static_cast<double>(f.count());
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* gamma = static_cast<const T*>(in[1]);
      const T* beta = static_cast<const T*>(in[2]);
      T* y = static_cast<T*>(out[0]);
      T* mean = static_cast<T*>(out[1]);
      T* rstd = static_cast<T*>(out[2]);
      const Dim groups = f.batch * f.groups;
      parallel_ranges(threads, groups, groups * f.count() * 4, [&](Dim begin, Dim end) {
        for (Dim g = begin; g < end; ++g) {
          double sum = 0, squares = 0;
          each_of_group(f, g, [&](Dim i, Dim) { sum += static_cast<double>(x[i]); });
          const double average = sum / count;
          each_of_group(f, g, [&](Dim i, Dim) {
            const double apart = static_cast<double>(x[i]) - average;
            squares += apart * apart;
          });
          const double inverse = 1 / std::sqrt(squares / count + epsilon);
          each_of_group(f, g, [&](Dim i, Dim c) {
            const double normal = (static_cast<double>(x[i]) - average) * inverse;
            y[i] = static_cast<T>(normal) * gamma[c] + beta[c];
          });
          mean[g] = static_cast<T>(average);
          rstd[g] = static_cast<T>(inverse);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> group_norm_sums_reference(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.in[1].shape[1]);
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* mean = static_cast<const T*>(in[1]);
      const T* rstd = static_cast<const T*>(in[2]);
      const T* dy = static_cast<const T*>(in[3]);
      T* of_normal = static_cast<T*>(out[0]);
      T* of_dy = static_cast<T*>(out[1]);
      const Dim columns = f.batch * f.channels;
      parallel_ranges(threads, columns, columns * f.positions * 4, [&](Dim begin, Dim end) {
        for (Dim column = begin; column < end; ++column) {
          const Dim b = column / f.channels, c = column % f.channels;
          const Dim group = b * f.groups + c / f.each;
          double normals = 0, flat = 0;
          for (Dim p = 0; p < f.positions; ++p) {
            const Dim i = (b * f.positions + p) * f.channels + c;
            normals += static_cast<double>(dy[i] * ((x[i] - mean[group]) * rstd[group]));
            flat += static_cast<double>(dy[i]);
          }
          of_normal[column] = static_cast<T>(normals);
          of_dy[column] = static_cast<T>(flat);
        }
      });
    });
  });
}

std::unique_ptr<Kernel> group_norm_gradient_reference(const PrepareCall& call) {
  const GroupNormForm f = group_norm_form(call.in[0], call.in[2].shape[1]);
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      const T* gamma = static_cast<const T*>(in[1]);
      const T* mean = static_cast<const T*>(in[2]);
      const T* rstd = static_cast<const T*>(in[3]);
      const T* dy = static_cast<const T*>(in[4]);
      const T* of_normal = static_cast<const T*>(in[5]);
      const T* of_dy = static_cast<const T*>(in[6]);
      T* dx = static_cast<T*>(out[0]);
      const Dim groups = f.batch * f.groups;
      parallel_ranges(threads, groups, groups * f.count() * 4, [&](Dim begin, Dim end) {
        for (Dim g = begin; g < end; ++g) {
          double flat = 0, slope = 0;
          for (Dim j = 0; j < f.each; ++j) {
            const double factor = static_cast<double>(gamma[g % f.groups * f.each + j]);
            flat += factor * static_cast<double>(of_dy[g * f.each + j]);
            slope += factor * static_cast<double>(of_normal[g * f.each + j]);
          }
          const T a = static_cast<T>(flat / static_cast<double>(f.count()));
          const T b = static_cast<T>(slope / static_cast<double>(f.count()));
          each_of_group(f, g, [&](Dim i, Dim c) {
            dx[i] = rstd[g] * (dy[i] * gamma[c] - a - (x[i] - mean[g]) * rstd[g] * b);
          });
        }
      });
    });
  });
}

}  // namespace pl::cpu

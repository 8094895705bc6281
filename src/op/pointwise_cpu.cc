// CPU kernels of the pointwise ops: one walk over the broadcast operands, inner loops that
// vectorise. Reads an element before it writes the one in its place, so an output may lie on an
// input. `omp simd` says that to the compiler, whose own overlap check would send in-place calls to
// a scalar loop.
#include "backend/cpu/parallel.h"
#include "op/broadcast.h"
#include "op/kernel.h"
#include "op/pointwise_math.h"

namespace pl::cpu {
namespace {

constexpr bool is_dear(Unary kind) {
  return kind == Unary::exp || kind == Unary::log || kind == Unary::tanh ||
         kind == Unary::sigmoid || kind == Unary::softplus || kind == Unary::expm1 ||
         kind == Unary::sin || kind == Unary::cos;
}
constexpr bool is_dear(Binary kind) {
  return kind == Binary::floor_divide || kind == Binary::mod || kind == Binary::power;
}

template <Binary kind, class T>
void row(const T* a, bool a_steps, const T* b, bool b_steps, T* y, Dim count) {
  if (a_steps && b_steps) {
#pragma omp simd
    for (Dim i = 0; i < count; ++i) y[i] = compute<kind>(a[i], b[i]);
  } else if (a_steps) {
    const T right = *b;
#pragma omp simd
    for (Dim i = 0; i < count; ++i) y[i] = compute<kind>(a[i], right);
  } else if (b_steps) {
    const T left = *a;
#pragma omp simd
    for (Dim i = 0; i < count; ++i) y[i] = compute<kind>(left, b[i]);
  } else {
    const T value = compute<kind>(*a, *b);
    for (Dim i = 0; i < count; ++i) y[i] = value;
  }
}

template <Binary kind, class T>
std::unique_ptr<Kernel> binary(const PrepareCall& call) {
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  const BroadcastWalk walk(call.in[0].shape, call.in[1].shape, call.out[0].shape);
  auto kernel = make_kernel([walk, total, threads](void* const* in, void* const* out, void*) {
    const T* a = static_cast<const T*>(in[0]);
    const T* b = static_cast<const T*>(in[1]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(
        threads, total, total * (is_dear(kind) ? 8 : 1),
        [&](Dim begin, Dim end) {
          walk.pieces(begin, end, [&](Dim a_at, Dim b_at, Dim at, Dim count) {
            row<kind>(a + a_at, walk.a_steps, b + b_at, walk.b_steps, y + at, count);
          });
        },
        64);
  });
  kernel->footprint += static_cast<Bytes>(walk.outer.size() * sizeof(BroadcastWalk::Outer));
  return kernel;
}

template <Unary kind, class T>
std::unique_ptr<Kernel> unary(const PrepareCall& call) {
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([total, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(
        threads, total, total * (is_dear(kind) ? 8 : 1),
        [&](Dim begin, Dim end) {
#pragma omp simd
          for (Dim i = begin; i < end; ++i) y[i] = compute<kind>(x[i]);
        },
        64);
  });
}

}  // namespace

template <Binary kind>
std::unique_ptr<Kernel> binary_reference(const PrepareCall& call) {
  auto body = [&]<class T>() { return binary<kind, T>(call); };
  if constexpr (kind == Binary::divide)
    return dispatch_float(call.in[0].dtype, body);
  else
    return dispatch_number(call.in[0].dtype, body);
}

template <Unary kind>
std::unique_ptr<Kernel> unary_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() { return unary<kind, T>(call); });
}

template std::unique_ptr<Kernel> binary_reference<Binary::add>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::subtract>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::multiply>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::divide>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::maximum>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::minimum>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::equal_mask>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::greater_mask>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::greater_equal_mask>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::floor_divide>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::mod>(const PrepareCall&);
template std::unique_ptr<Kernel> binary_reference<Binary::power>(const PrepareCall&);

template std::unique_ptr<Kernel> unary_reference<Unary::negative>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::exp>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::log>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::sqrt>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::square>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::tanh>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::sigmoid>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::abs>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::sign>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::softplus>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::expm1>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::sin>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::cos>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::floor>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::ceil>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::trunc>(const PrepareCall&);
template std::unique_ptr<Kernel> unary_reference<Unary::round>(const PrepareCall&);

}  // namespace pl::cpu

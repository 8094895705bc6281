// The CPU kernel of transpose, compiled once for each SIMD target. What neighbours in the operand
// and in the result is moved as one unit. Of the other dimensions two matter: the innermost of the
// operand, and the innermost of the result. Blocks of these two stay in a core's cache; units of 1,
// 2, 4 and 8 bytes change places in registers.
#include "op/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/transpose_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[p * to_p + q] = x[q * from_q + p] for p < ps and q < qs.
template <class T>
HWY_INLINE void move_elements(const T* x, Dim from_q, T* y, Dim to_p, Dim ps, Dim qs) {
  for (Dim p = 0; p < ps; ++p)
    for (Dim q = 0; q < qs; ++q) y[p * to_p + q] = x[q * from_q + p];
}

#if HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE void move_block(const T* x, Dim from_q, T* y, Dim to_p, Dim ps, Dim qs) {
  move_elements(x, from_q, y, to_p, ps, qs);
}
#else
// A vector of blocks of 16 bytes, `step` elements apart.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* x, Dim step) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, x);
  } else {
    const hn::Half<D> half;
    const auto blocks = static_cast<Dim>(hn::MaxLanes(half) * sizeof(T) / 16);
    return hn::Combine(d, load_blocks(half, x + blocks * step, step), load_blocks(half, x, step));
  }
}

// The same for p < 16 bytes and q < a vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void move_tile(D d, const T* x, Dim from_q, T* y, Dim to_p) {
  constexpr Dim kSide = 16 / sizeof(T);
  hn::Vec<D> rows[kSide], mixed[kSide];
  for (Dim i = 0; i < kSide; ++i) rows[i] = load_blocks(d, x + i * from_q, kSide * from_q);
  for (Dim step = 1; step < kSide; step *= 2) {
    for (Dim i = 0; i < kSide / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kSide / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kSide / 2]);
    }
    for (Dim i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
  for (Dim i = 0; i < kSide; ++i) hn::StoreU(rows[i], d, y + i * to_p);
}

// All of them by tiles. The last ones lie on those before them where less than a tile is left.
template <class T>
HWY_INLINE void move_block(const T* x, Dim from_q, T* y, Dim to_p, Dim ps, Dim qs) {
  const hn::CappedTag<T, 64 / sizeof(T)> wide;
  const hn::CappedTag<T, 16 / sizeof(T)> narrow;
  constexpr Dim kSide = 16 / sizeof(T);
  const auto width = static_cast<Dim>(hn::Lanes(wide));
  if (ps < kSide || qs < kSide) return move_elements(x, from_q, y, to_p, ps, qs);
  auto strip = [&](auto d, Dim q) HWY_ATTR {
    for (Dim p = 0; p < ps; p += kSide) {
      const Dim at = std::min(p, ps - kSide);
      move_tile(d, x + q * from_q + at, from_q, y + at * to_p + q, to_p);
    }
  };
  Dim q = 0;
  for (; q + width <= qs; q += width) strip(wide, q);
  for (; q < qs; q += kSide) strip(narrow, std::min(q, qs - kSide));
}
#endif

void move_block_1(const uint8_t* x, Dim from_q, uint8_t* y, Dim to_p, Dim ps, Dim qs) {
  move_block(x, from_q, y, to_p, ps, qs);
}
void move_block_2(const uint16_t* x, Dim from_q, uint16_t* y, Dim to_p, Dim ps, Dim qs) {
  move_block(x, from_q, y, to_p, ps, qs);
}
void move_block_4(const uint32_t* x, Dim from_q, uint32_t* y, Dim to_p, Dim ps, Dim qs) {
  move_block(x, from_q, y, to_p, ps, qs);
}
void move_block_8(const uint64_t* x, Dim from_q, uint64_t* y, Dim to_p, Dim ps, Dim qs) {
  move_block(x, from_q, y, to_p, ps, qs);
}

// Two moves that may overlap, of half of `bytes` or more each.
template <class T>
HWY_INLINE void move_ends(const uint8_t* x, uint8_t* y, Dim bytes) {
  T first, last;
  std::memcpy(&first, x, sizeof(T));
  std::memcpy(&last, x + bytes - sizeof(T), sizeof(T));
  std::memcpy(y, &first, sizeof(T));
  std::memcpy(y + bytes - sizeof(T), &last, sizeof(T));
}
template <class D>
HWY_INLINE void move_vectors(D d, const uint8_t* x, uint8_t* y, Dim bytes) {
  const auto width = static_cast<Dim>(hn::Lanes(d));
  for (Dim i = 0; i + width <= bytes; i += width) hn::StoreU(hn::LoadU(d, x + i), d, y + i);
  if (bytes % width) hn::StoreU(hn::LoadU(d, x + bytes - width), d, y + bytes - width);
}
HWY_INLINE void move_run(const uint8_t* x, uint8_t* y, Dim bytes) {
  constexpr Dim kLong = 2048;  // the library's copy starts late, and is the fastest then
  const hn::CappedTag<uint8_t, 64> wide;
  if (bytes >= kLong)
    std::memcpy(y, x, static_cast<size_t>(bytes));
  else if (bytes >= static_cast<Dim>(hn::Lanes(wide)))
    move_vectors(wide, x, y, bytes);
  else if (bytes >= 16)
    move_vectors(hn::CappedTag<uint8_t, 16>(), x, y, bytes);
  else if (bytes >= 8)
    move_ends<uint64_t>(x, y, bytes);
  else if (bytes >= 4)
    move_ends<uint32_t>(x, y, bytes);
  else
    for (Dim i = 0; i < bytes; ++i) y[i] = x[i];
}

// The same of runs of `run` bytes; steps are in bytes.
void move_runs(const uint8_t* x, Dim from_q, uint8_t* y, Dim to_p, Dim ps, Dim qs, Dim run) {
  for (Dim p = 0; p < ps; ++p)
    for (Dim q = 0; q < qs; ++q) move_run(x + q * from_q + p * run, y + p * to_p + q * run, run);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(move_block_1);
HWY_EXPORT(move_block_2);
HWY_EXPORT(move_block_4);
HWY_EXPORT(move_block_8);
HWY_EXPORT(move_runs);

namespace {

struct Axis {
  Dim size, from, to;  // how far a step goes in the operand and in the result
};

// The result's dimensions without those of size 1, neighbours in both tensors merged.
std::vector<Axis> merged_axes(const PrepareCall& call) {
  const Shape &x = call.in[0].shape, &y = call.out[0].shape;
  std::vector<Dim> strides(static_cast<size_t>(x.rank()), 1);
  for (int axis = x.rank() - 2; axis >= 0; --axis)
    strides[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis) + 1] * x[axis + 1];
  std::vector<Axis> axes;
  Dim to = 1;
  for (int axis = y.rank() - 1; axis >= 0; to *= y[axis--]) {
    const auto from = static_cast<size_t>(call.attrs.list("perm")[static_cast<size_t>(axis)]);
    if (y[axis] == 1) continue;
    if (!axes.empty() && strides[from] == axes.front().from * axes.front().size)
      axes.front().size *= y[axis];
    else
      axes.insert(axes.begin(), {y[axis], strides[from], to});
  }
  return axes;
}

// A call as blocks of its two dimensions p, neighbours in the operand, and q, neighbours in the
// result. Sizes and steps are in units of `unit` bytes.
struct Form {
  std::vector<Axis> outer;
  Axis p{1, 1, 1}, q{1, 1, 1};
  Dim unit, total = 1;  // bytes of a unit; units in all
};

Form form_of(const PrepareCall& call) {
  const Dim size = size_of(call.in[0].dtype);
  Form form{.outer = merged_axes(call), .unit = size};
  for (Axis& axis : form.outer) form.total *= axis.size;
  if (form.total == 0 || form.outer.empty()) return form;
  if (form.outer.back().from == 1) {
    const Dim run = form.outer.back().size;
    form.outer.pop_back();
    form.unit *= run;
    form.total /= run;
    for (Axis& axis : form.outer) axis.from /= run, axis.to /= run;
  }
  if (form.outer.empty()) return form;
  form.q = form.outer.back();
  form.outer.pop_back();
  const auto p = std::find_if(form.outer.begin(), form.outer.end(),
                              [](const Axis& axis) { return axis.from == 1; });
  form.p = *p;
  form.outer.erase(p);
  return form;
}

// move(x, y, ps, qs) for each block of at most `side` units along p and q; tasks are shared out.
template <class U, class Move>
std::unique_ptr<Kernel> in_blocks(Form form, Dim step, Dim side, int threads, const Move& move) {
  const auto held = static_cast<Bytes>(form.outer.size() * sizeof(Axis));
  const Dim across = (form.q.size + side - 1) / side, down = (form.p.size + side - 1) / side;
  const Dim tasks = form.total == 0 ? 0 : form.total / (form.p.size * form.q.size) * down * across;
  auto kernel = make_kernel([=, f = std::move(form)](void* const* in, void* const* out, void*) {
    const U* x = static_cast<const U*>(in[0]);
    U* y = static_cast<U*>(out[0]);
    parallel_ranges(threads, tasks, f.total * f.unit / 4, [&](Dim begin, Dim end) {
      for (Dim task = begin; task < end; ++task) {
        const Dim q = task % across * side, p = task / across % down * side;
        Dim from = p + q * f.q.from, to = q + p * f.p.to, index = task / across / down;
        for (size_t d = f.outer.size(); d-- > 0 && index > 0; index /= f.outer[d].size) {
          from += index % f.outer[d].size * f.outer[d].from;
          to += index % f.outer[d].size * f.outer[d].to;
        }
        move(x + from * step, f.q.from * step, y + to * step, f.p.to * step,
             std::min(side, f.p.size - p), std::min(side, f.q.size - q));
      }
    });
  });
  kernel->footprint += held;
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> transpose_blocked(const PrepareCall& call) {
  constexpr Dim kSide = 64, kCached = 16384;  // a block's units and bytes
  Form form = form_of(call);
  const Dim unit = form.unit;
  const int threads = call.backend.threads();
  auto of_units = [&]<class U>(const auto& move) {
    return in_blocks<U>(std::move(form), 1, kSide, threads, move);
  };
  // A part of a batch may lie where only its dtype allows.
  if (unit <= std::max<Dim>(call.alignment(), size_of(call.in[0].dtype))) {
    if (unit == 1)
      return of_units.template operator()<uint8_t>([](auto... block) {
        HWY_DYNAMIC_DISPATCH(move_block_1)(block...);
      });
    if (unit == 2)
      return of_units.template operator()<uint16_t>([](auto... block) {
        HWY_DYNAMIC_DISPATCH(move_block_2)(block...);
      });
    if (unit == 4)
      return of_units.template operator()<uint32_t>([](auto... block) {
        HWY_DYNAMIC_DISPATCH(move_block_4)(block...);
      });
    if (unit == 8)
      return of_units.template operator()<uint64_t>([](auto... block) {
        HWY_DYNAMIC_DISPATCH(move_block_8)(block...);
      });
  }
  Dim side = kSide;
  while (side > 1 && side * side * unit > kCached) side /= 2;
  return in_blocks<uint8_t>(std::move(form), unit, side, threads, [unit](auto... block) {
    HWY_DYNAMIC_DISPATCH(move_runs)(block..., unit);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE

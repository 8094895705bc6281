// Kernels of fused_pointwise: one walk over the result, a tile after the other. Operands of the
// result's size are read where they lie; others are spread over a register, a tile on the stack.
// Each instruction reads registers or operands and writes a register, the last one the result, so
// that this one may lie on an operand. bfloat16 is computed in float32 tiles, rounded after each
// instruction, as the ops alone would.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/broadcast.h"
#include "op/dropout.h"
#include "op/fused_pointwise.h"
#include "op/gelu.h"
#include "op/infer.h"
#include "op/kernel.h"
#include "op/pointwise_math.h"
#include "op/step_params.h"
#include "op/tile_run.h"
#include "op/widen.h"

namespace pl::cpu {
namespace {

constexpr Dim kTileBytes = 4096;

template <class T>
using TileFunction = void (*)(const TileInstruction&, const T* a, const T* b, T* y, Dim count);

// Where an instruction finds a value.
struct Place {
  enum Kind : uint8_t { none, operand, reg, result } kind = none;
  int at = 0;
};

// An instruction with places, or an operand that is spread over a register first.
struct TileStep {
  TileInstruction made;
  bool load = false;
  int operand = -1;  // of a load, or the step's parameters of dropout
  Place a, b, y;
};

struct TilePlan {
  std::vector<TileStep> steps;
  int registers = 0;
  Bytes bytes() const { return static_cast<Bytes>(steps.size() * sizeof(TileStep)); }
};

// Gives every value a place. `direct`: per operand, it has the result's size and dtype.
class Placer {
 public:
  Placer(const TileProgram& program, const std::vector<bool>& direct)
      : program_(program),
        direct_(direct),
        places_(direct.size() + program.code.size()),
        last_(places_.size(), -1) {}

  TilePlan run() {
    const int count = static_cast<int>(program_.code.size());
    for (int i = 0; i < count; ++i)
      for (int id : {at(i).a, at(i).b})
        if (id >= 0) last_[index(id)] = i;
    for (int i = 0; i < count; ++i) {
      const TileInstruction& made = at(i);
      const size_t result = index(program_.operands + i);
      TileStep step{.made = made};
      if (made.op == TileOp::cast) {
        // Converted as it is loaded, once for each instruction that asks.
        step.load = true;
        step.operand = made.a;
      } else {
        step.a = find(made.a);
        if (made.op == TileOp::dropout)
          step.operand = made.b;
        else if (made.b >= 0)
          step.b = find(made.b);
        release(made.a, i);
        if (made.op != TileOp::dropout) release(made.b, i);
      }
      if (i + 1 < count)
        places_[result] = {Place::reg, take()};
      else
        places_[result] = {Place::result, 0};
      step.y = places_[result];
      plan_.steps.push_back(step);
      release(program_.operands + i, last_[result] < 0 && i + 1 < count ? -1 : i);
    }
    return std::move(plan_);
  }

 private:
  static size_t index(int id) { return static_cast<size_t>(id); }
  const TileInstruction& at(int i) const { return program_.code[index(i)]; }

  Place find(int id) {
    Place& place = places_[index(id)];
    if (place.kind != Place::none) return place;
    if (direct_[index(id)]) return place = {Place::operand, id};
    place = {Place::reg, take()};
    plan_.steps.push_back({.load = true, .operand = id, .y = place});
    return place;
  }
  int take() {
    for (size_t r = 0; r < used_.size(); ++r)
      if (!used_[r]) {
        used_[r] = true;
        return static_cast<int>(r);
      }
    used_.push_back(true);
    plan_.registers = static_cast<int>(used_.size());
    return plan_.registers - 1;
  }
  void release(int id, int now) {
    if (id >= 0 && last_[index(id)] == now && places_[index(id)].kind == Place::reg)
      used_[index(places_[index(id)].at)] = false;
  }

  const TileProgram& program_;
  const std::vector<bool>& direct_;
  std::vector<Place> places_;
  std::vector<int> last_;
  std::vector<bool> used_;
  TilePlan plan_;
};

// `count` elements of an operand, from `offset` on or, if it does not step, that element again.
template <class T>
void load(Dtype from, const void* operand, Dim offset, bool steps, T* to, Dim count) {
  auto run = [&]<class From>(const From* x, const auto& convert) {
    x += offset;
    if (steps)
      for (Dim i = 0; i < count; ++i) to[i] = convert(x[i]);
    else
      std::fill_n(to, count, convert(*x));
  };
  auto number = [](auto x) { return static_cast<T>(x); };
  switch (from) {
    case Dtype::float32:
      return run(static_cast<const float*>(operand), number);
    case Dtype::float64:
      return run(static_cast<const double*>(operand), number);
    case Dtype::bfloat16:
      if constexpr (std::is_same_v<T, float>)
        if (steps) return convert_range(static_cast<const Bfloat16*>(operand) + offset, to, count);
      return run(static_cast<const Bfloat16*>(operand),
                 [](Bfloat16 x) { return static_cast<T>(static_cast<float>(x)); });
    case Dtype::int32:
      return run(static_cast<const int32_t*>(operand), number);
    case Dtype::int64:
      return run(static_cast<const int64_t*>(operand), number);
    case Dtype::boolean:
      return run(static_cast<const uint8_t*>(operand), [](uint8_t x) { return T(x != 0); });
    default:
      return run(static_cast<const uint8_t*>(operand), number);
  }
}

template <class T, class F>
void each(const T* a, T* y, Dim count, const F& f) {
#pragma omp simd
  for (Dim i = 0; i < count; ++i) y[i] = f(a[i]);
}
template <class T, class F>
void each(const T* a, const T* b, T* y, Dim count, const F& f) {
#pragma omp simd
  for (Dim i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
}

template <class T>
void run_tile_plain_two(const TileInstruction& made, const T* a, const T* b, T* y, Dim count) {
  const T alpha = static_cast<T>(made.x);
  auto binary = [&]<Binary kind>() {
    each(a, b, y, count, [](T p, T q) { return compute<kind>(p, q); });
  };
  switch (made.op) {
    case TileOp::add:
      return binary.template operator()<Binary::add>();
    case TileOp::subtract:
      return binary.template operator()<Binary::subtract>();
    case TileOp::multiply:
      return binary.template operator()<Binary::multiply>();
    case TileOp::divide:
      return binary.template operator()<Binary::divide>();
    case TileOp::maximum:
      return binary.template operator()<Binary::maximum>();
    case TileOp::minimum:
      return binary.template operator()<Binary::minimum>();
    case TileOp::equal_mask:
      return binary.template operator()<Binary::equal_mask>();
    case TileOp::greater_mask:
      return binary.template operator()<Binary::greater_mask>();
    case TileOp::greater_equal_mask:
      return binary.template operator()<Binary::greater_equal_mask>();
    case TileOp::floor_divide:
      return binary.template operator()<Binary::floor_divide>();
    case TileOp::mod:
      return binary.template operator()<Binary::mod>();
    case TileOp::power:
      return binary.template operator()<Binary::power>();
    case TileOp::relu_gradient:
      return each(a, b, y, count, [](T p, T q) { return p > T(0) ? q : T(0); });
    case TileOp::leaky_relu_gradient:
      return each(a, b, y, count, [=](T p, T q) { return p > T(0) ? q : alpha * q; });
    default:
      return gelu_gradient_row(a, b, y, count, made.x != 0);
  }
}

template <class T>
void run_tile_plain_one(const TileInstruction& made, const T* a, T* y, Dim count) {
  const T x = static_cast<T>(made.x), offset = static_cast<T>(made.y);
  auto unary = [&]<Unary kind>() { each(a, y, count, [](T p) { return compute<kind>(p); }); };
  switch (made.op) {
    case TileOp::negative:
      return unary.template operator()<Unary::negative>();
    case TileOp::exp:
      return unary.template operator()<Unary::exp>();
    case TileOp::log:
      return unary.template operator()<Unary::log>();
    case TileOp::sqrt:
      return unary.template operator()<Unary::sqrt>();
    case TileOp::square:
      return unary.template operator()<Unary::square>();
    case TileOp::tanh:
      return unary.template operator()<Unary::tanh>();
    case TileOp::sigmoid:
      return unary.template operator()<Unary::sigmoid>();
    case TileOp::abs:
      return unary.template operator()<Unary::abs>();
    case TileOp::sign:
      return unary.template operator()<Unary::sign>();
    case TileOp::softplus:
      return unary.template operator()<Unary::softplus>();
    case TileOp::expm1:
      return unary.template operator()<Unary::expm1>();
    case TileOp::sin:
      return unary.template operator()<Unary::sin>();
    case TileOp::cos:
      return unary.template operator()<Unary::cos>();
    case TileOp::floor:
      return unary.template operator()<Unary::floor>();
    case TileOp::ceil:
      return unary.template operator()<Unary::ceil>();
    case TileOp::trunc:
      return unary.template operator()<Unary::trunc>();
    case TileOp::round:
      return unary.template operator()<Unary::round>();
    case TileOp::scale:
      return each(a, y, count, [=](T p) { return p * x + offset; });
    case TileOp::relu:
      return each(a, y, count, [](T p) { return p <= T(0) ? T(0) : p; });
    case TileOp::leaky_relu:
      return each(a, y, count, [=](T p) { return p > T(0) ? p : x * p; });
    default:
      return gelu_row(a, y, count, made.x != 0);
  }
}

}  // namespace

template <class T>
void run_tile_plain(const TileInstruction& made, const T* a, const T* b, T* y, Dim count) {
  if (operands_of(made.op) == 2)
    run_tile_plain_two(made, a, b, y, count);
  else
    run_tile_plain_one(made, a, y, count);
}
template void run_tile_plain(const TileInstruction&, const float*, const float*, float*, Dim);
template void run_tile_plain(const TileInstruction&, const double*, const double*, double*, Dim);

namespace {

// Everything that the tiles of one call share.
template <class T>
struct Tiles {
  static constexpr Dim kTile = kTileBytes / static_cast<Dim>(sizeof(T));

  TilePlan plan;
  std::vector<BroadcastWalk> walks;  // per operand
  std::vector<Dtype> dtypes;
  Dim total, per_row;  // elements; of one row
  TileFunction<T> function;
  bool narrow;  // the result is bfloat16: made in a tile behind the registers
  // Of a band of image rows: elements in a row, rows in the whole image, first row of each band.
  Dim image_row = 0, height = 0;
  std::vector<int64_t> starts = {};

  void run(void* const* in, void* out, Dim begin, Dim end) const {
    alignas(64) unsigned char memory[(kMostTileRegisters + 1) * kTileBytes];
    T* const registers = reinterpret_cast<T*>(memory);
    for (Dim from = begin; from < end; from += kTile) {
      const Dim count = std::min(kTile, end - from);
      auto at = [&](const Place& place) -> T* {
        if (place.kind == Place::operand) return static_cast<T*>(in[place.at]) + from;
        if (place.kind == Place::result && !narrow) return static_cast<T*>(out) + from;
        return registers + (place.kind == Place::result ? kMostTileRegisters : place.at) * kTile;
      };
      for (const TileStep& step : plan.steps) {
        if (step.load)
          spread(step, in[step.operand], from, at(step.y), count);
        else if (step.made.op == TileOp::dropout)
          drop(step, in[step.operand], from, at(step.a), at(step.y), count);
        else
          function(step.made, at(step.a), at(step.b), at(step.y), count);
        if constexpr (std::is_same_v<T, float>) {
          if (narrow && step.y.kind == Place::result)
            convert_range(at(step.y), static_cast<Bfloat16*>(out) + from, count);
          else if (narrow &&
                   !(step.load && dtypes[static_cast<size_t>(step.operand)] == Dtype::bfloat16))
            round_range(at(step.y), count);
        }
      }
    }
  }

 private:
  void spread(const TileStep& step, const void* operand, Dim from, T* to, Dim count) const {
    const size_t o = static_cast<size_t>(step.operand);
    const BroadcastWalk& walk = walks[o];
    walk.pieces(from, from + count, [&](Dim a, Dim, Dim y, Dim piece) {
      load(dtypes[o], operand, a, walk.a_steps, to + (y - from), piece);
    });
  }

  void drop(const TileStep& step, const void* params, Dim from, const T* x, T* y, Dim count) const {
    const DropoutForm form{total, step.made.rows ? per_row : 0, step.made.x,
                           static_cast<uint64_t>(step.made.stream)};
    DropoutMask mask = dropout_mask(form, params);
    if (!starts.empty()) {
      StepParams band;
      std::memcpy(&band, params, sizeof band);
      mask.base = (band.row_offset * height + starts[static_cast<size_t>(band.band)]) * image_row;
    }
    mask.base += from;
    dropout_tile(x, y, count, mask, form.factor());
  }
};

template <class T>
std::unique_ptr<Kernel> tile_kernel(const PrepareCall& call, TileFunction<T> function) {
  const TileProgram program =
      *parse_tile_program(call.attrs.text("program"), static_cast<int>(call.in.size()));
  std::vector<bool> params(call.in.size(), false), direct;
  for (const TileInstruction& made : program.code)
    if (made.op == TileOp::dropout) params[static_cast<size_t>(made.b)] = true;
  const Shape& shape = call.out[0].shape;
  const Dim total = shape.elements();
  Tiles<T> tiles{.total = total,
                 .per_row = shape.rank() > 0 && total > 0 ? total / shape[0] : 0,
                 .function = function,
                 .narrow = call.out[0].dtype == Dtype::bfloat16};
  if (call.attrs.has("starts") && total > 0) {
    tiles.image_row = total / (shape[0] * shape[1]);
    tiles.height = call.attrs.integer("height");
    tiles.starts = call.attrs.list("starts");
  }
  double flops = 0;
  for (const TileInstruction& made : program.code) flops += flops_of(made.op);
  for (size_t i = 0; i < call.in.size(); ++i) {
    direct.push_back(!params[i] && !tiles.narrow && call.in[i].dtype == call.out[0].dtype &&
                     call.in[i].elements() == total);
    tiles.walks.emplace_back(params[i] ? Shape{} : call.in[i].shape, shape, shape);
    tiles.dtypes.push_back(call.in[i].dtype);
  }
  tiles.plan = Placer(program, direct).run();
  Bytes held = tiles.plan.bytes();
  for (const BroadcastWalk& walk : tiles.walks)
    held += static_cast<Bytes>(sizeof(BroadcastWalk) +
                               walk.outer.size() * sizeof(BroadcastWalk::Outer));
  const int threads = call.backend.threads();
  const Bytes stack = threads * (tiles.plan.registers + tiles.narrow) * kTileBytes;
  const Dim work = static_cast<Dim>(static_cast<double>(total) * std::max(1.0, flops / 4));
  auto kernel = make_kernel(
      [tiles = std::move(tiles), threads, work](void* const* in, void* const* out, void*) {
        parallel_ranges(
            threads, tiles.total, work,
            [&](Dim begin, Dim end) { tiles.run(in, out[0], begin, end); }, 64);
      });
  kernel->footprint += held;
  kernel->transient = stack;
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> fused_pointwise_simd(const PrepareCall& call) {
  const Dtype dtype = call.out[0].dtype;
  if (dtype != Dtype::float32 && dtype != Dtype::bfloat16) return nullptr;
  return tile_kernel<float>(call, run_tile_simd);
}

std::unique_ptr<Kernel> fused_pointwise_reference(const PrepareCall& call) {
  return dispatch_float(call.out[0].dtype,
                        [&]<class T>() { return tile_kernel<T>(call, run_tile_plain<T>); });
}

}  // namespace pl::cpu

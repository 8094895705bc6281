// Kernels of update and sum_squares: one walk over the variables, a tile after the other, as
// fused_pointwise does it, but with several results. A result is written where it belongs as soon
// as the variable's old value is not read any more; until then it waits in a register, a tile on
// the stack.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/broadcast.h"
#include "op/kernel.h"
#include "op/tile_run.h"
#include "op/update.h"

namespace pl::cpu {
namespace {

constexpr Dim kTileBytes = 2048;  // all registers of an update stay in a core's first cache
constexpr Dim kPiece = 16384;     // elements summed before the sums join

template <class T>
using TileFunction = void (*)(const TileInstruction&, const T* a, const T* b, T* y, Dim count);

// Where an instruction finds a value.
struct Place {
  enum Kind : uint8_t { none, operand, reg, output } kind = none;
  int at = 0;
};

struct ProgramStep {
  TileInstruction made;
  Place a, b, y;
};

struct ProgramPlan {
  std::vector<ProgramStep> steps;
  std::vector<int> fixed;      // operands that are one number; register i holds the i-th
  std::vector<int> spread;     // operands that broadcast; in the registers behind these
  std::vector<Place> outputs;  // where each output is found when the steps are done
  int registers = 0;
};

enum class Shown : uint8_t { direct, number, spread };  // how an operand lies to the variables

// Gives every value a place. `writes`: outputs go to memory, each perhaps on its own operand.
class Placer {
 public:
  Placer(const StepProgram& program, const std::vector<Shown>& shown, bool writes)
      : program_(program),
        writes_(writes),
        places_(shown.size() + program.tile.code.size()),
        last_(places_.size(), -1) {
    for (size_t i = 0; i < shown.size(); ++i)
      if (shown[i] == Shown::number) plan_.fixed.push_back(static_cast<int>(i));
    for (size_t i = 0; i < shown.size(); ++i)
      if (shown[i] == Shown::spread) plan_.spread.push_back(static_cast<int>(i));
    for (const auto* list : {&plan_.fixed, &plan_.spread})
      for (int id : *list) places_[index(id)] = {Place::reg, take()};
    for (size_t i = 0; i < shown.size(); ++i)
      if (shown[i] == Shown::direct) places_[i] = {Place::operand, static_cast<int>(i)};
  }

  ProgramPlan run() {
    const int count = static_cast<int>(program_.tile.code.size());
    for (int i = 0; i < count; ++i)
      for (int id : {at(i).a, at(i).b})
        if (id >= 0) last_[index(id)] = i;
    for (int64_t id : program_.outputs)
      if (!writes_ || id < program_.tile.operands) wait(static_cast<int>(id), count);
    for (int i = 0; i < count; ++i) step(i, count);
    for (int64_t id : program_.outputs)
      plan_.outputs.push_back(places_[index(static_cast<int>(id))]);
    return std::move(plan_);
  }

 private:
  static size_t index(int id) { return static_cast<size_t>(id); }
  const TileInstruction& at(int i) const { return program_.tile.code[index(i)]; }
  void wait(int id, int count) { last_[index(id)] = count; }

  void step(int i, int count) {
    const TileInstruction& made = at(i);
    const int result = program_.tile.operands + i;
    ProgramStep step{.made = made, .a = places_[index(made.a)], .b = {}, .y = {}};
    step.b = made.b >= 0 ? places_[index(made.b)] : step.a;
    const int output = output_of(result);
    const bool direct = writes_ && output >= 0 && last_[index(output)] <= i;
    if (output >= 0 && !direct) wait(result, count);
    release(made.a, i);
    if (made.b != made.a) release(made.b, i);
    step.y = direct ? Place{Place::output, output} : Place{Place::reg, take()};
    places_[index(result)] = step.y;
    plan_.steps.push_back(step);
    if (last_[index(result)] < 0) release(result, -1);
  }

  int output_of(int id) const {
    const auto found = std::find(program_.outputs.begin(), program_.outputs.end(), id);
    return found == program_.outputs.end() ? -1
                                           : static_cast<int>(found - program_.outputs.begin());
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
  // Registers of operands are filled once and stay.
  void release(int id, int now) {
    if (id >= program_.tile.operands && last_[index(id)] == now &&
        places_[index(id)].kind == Place::reg)
      used_[index(places_[index(id)].at)] = false;
  }

  const StepProgram& program_;
  bool writes_;
  std::vector<Place> places_;
  std::vector<int> last_;
  std::vector<bool> used_;
  ProgramPlan plan_;
};

// A prepared program over `total` elements.
template <class T>
struct Runner {
  static constexpr Dim kTile = kTileBytes / static_cast<Dim>(sizeof(T));
  static constexpr int kMostRegisters = kMostStepOperands + kMostStepRegisters + kMostUpdated;

  StepProgram program;
  ProgramPlan plan;
  std::vector<BroadcastWalk> walks;  // as plan.spread
  TileFunction<T> function;
  Dim total = 0;
  double flops = 0;

  Bytes bytes() const {
    Bytes sum = static_cast<Bytes>(plan.steps.size() * sizeof(ProgramStep) +
                                   program.tile.code.size() * sizeof(TileInstruction) +
                                   program.scalars.size() * sizeof(ScalarInstruction) + 512);
    for (const BroadcastWalk& walk : walks)
      sum += static_cast<Bytes>(sizeof walk + walk.outer.size() * sizeof(BroadcastWalk::Outer));
    return sum;
  }

  // Numbers that all elements read: operands of one element, then the step's. As plan.fixed.
  void numbers(void* const* in, T* values) const {
    std::array<T, kMostScalars> scalars;
    StepParams params;
    std::memcpy(&params, in[params_at], sizeof params);
    compute_scalars(program.scalars, params, scalars.data());
    for (size_t i = 0; i < plan.fixed.size(); ++i) {
      const int use = plan.fixed[i] - program.tensors;
      values[i] = use < 0 ? *static_cast<const T*>(in[plan.fixed[i]])
                          : scalars[static_cast<size_t>(program.uses[static_cast<size_t>(use)])];
    }
  }

  // After each tile: done(tile's results by `at`, first element, count).
  template <class Done>
  void run(const T* fixed, void* const* in, void* const* out, Dim begin, Dim end,
           const Done& done) const {
    alignas(64) unsigned char memory[kMostRegisters * kTileBytes];
    T* const registers = reinterpret_cast<T*>(memory);
    for (size_t r = 0; r < plan.fixed.size(); ++r)
      std::fill_n(registers + static_cast<Dim>(r) * kTile, std::min(kTile, end - begin), fixed[r]);
    for (Dim from = begin; from < end; from += kTile) {
      const Dim count = std::min(kTile, end - from);
      auto at = [&](const Place& place) -> T* {
        if (place.kind == Place::operand) return static_cast<T*>(in[place.at]) + from;
        if (place.kind == Place::output) return static_cast<T*>(out[place.at]) + from;
        return registers + place.at * kTile;
      };
      for (size_t s = 0; s < plan.spread.size(); ++s)
        spread(walks[s], static_cast<const T*>(in[plan.spread[s]]), from, count,
               registers + static_cast<Dim>(plan.fixed.size() + s) * kTile);
      for (const ProgramStep& step : plan.steps)
        function(step.made, at(step.a), at(step.b), at(step.y), count);
      done(at, from, count);
    }
  }

  size_t params_at = 0;

 private:
  static void spread(const BroadcastWalk& walk, const T* operand, Dim from, Dim count, T* to) {
    walk.pieces(from, from + count, [&](Dim a, Dim, Dim y, Dim piece) {
      if (walk.a_steps)
        std::copy_n(operand + a, piece, to + (y - from));
      else
        std::fill_n(to + (y - from), piece, operand[a]);
    });
  }
};

template <class T>
Runner<T> runner_of(const PrepareCall& call, const Shape& shape, size_t others, bool writes,
                    TileFunction<T> function) {
  const size_t tensors = call.in.size() - others;
  Runner<T> runner{.program = *step_program_of(call.attrs, static_cast<int>(tensors)),
                   .plan = {},
                   .walks = {},
                   .function = function,
                   .total = shape.elements(),
                   .params_at = call.in.size() - 1};
  std::vector<Shown> shown;
  for (size_t i = 0; i < static_cast<size_t>(runner.program.tile.operands); ++i) {
    const bool number = i >= tensors || (call.in[i].elements() == 1 && runner.total != 1);
    shown.push_back(number                                  ? Shown::number
                    : call.in[i].elements() == runner.total ? Shown::direct
                                                            : Shown::spread);
  }
  runner.plan = Placer(runner.program, shown, writes).run();
  for (int id : runner.plan.spread)
    runner.walks.emplace_back(call.in[static_cast<size_t>(id)].shape, shape, shape);
  for (const TileInstruction& made : runner.program.tile.code) runner.flops += flops_of(made.op);
  return runner;
}

template <class T>
Dim work_of(const Runner<T>& runner) {
  return static_cast<Dim>(static_cast<double>(runner.total) * std::max(1.0, runner.flops / 4));
}

template <class T>
void bill(Kernel& kernel, Bytes held, int registers, int threads) {
  kernel.footprint += held;
  kernel.transient = threads * registers * kTileBytes;
}

template <class T>
std::unique_ptr<Kernel> update_kernel(const PrepareCall& call, TileFunction<T> function) {
  const bool guarded = call.attrs.integer("guarded", 0) != 0;
  const int threads = call.backend.threads();
  Runner<T> runner = runner_of<T>(call, call.out[0].shape, guarded ? 2 : 1, true, function);
  const Bytes held = runner.bytes();
  const int registers = runner.plan.registers;
  const Dim work = work_of(runner);
  const size_t outputs = call.out.size(), flag = call.in.size() - 2;
  auto kernel = make_kernel([=, runner = std::move(runner)](void* const* in, void* const* out,
                                                            void*) {
    if (guarded && !(*static_cast<const T*>(in[flag]) > T(0))) {
      for (size_t o = 0; o < outputs; ++o)
        if (out[o] != in[o])
          std::memcpy(out[o], in[o], static_cast<size_t>(runner.total) * sizeof(T));
      return;
    }
    std::array<T, kMostStepOperands> fixed;
    runner.numbers(in, fixed.data());
    parallel_ranges(
        threads, runner.total, work,
        [&](Dim begin, Dim end) {
          runner.run(fixed.data(), in, out, begin, end, [&](const auto& at, Dim from, Dim count) {
            for (size_t o = 0; o < outputs; ++o) {
              T* const to = static_cast<T*>(out[o]) + from;
              const T* const made = at(runner.plan.outputs[o]);
              if (made != to) std::copy_n(made, count, to);
            }
          });
        },
        64);
  });
  bill<T>(*kernel, held, registers, threads);
  return kernel;
}

// Neighbours first, then pairs of pairs: errors grow with the logarithm of the count.
double join_pairwise(double* parts, Dim count) {
  for (Dim step = 1; step < count; step *= 2)
    for (Dim i = 0; i + step < count; i += 2 * step) parts[i] += parts[i + step];
  return count > 0 ? parts[0] : 0;
}

template <class T>
std::unique_ptr<Kernel> sums_kernel(const PrepareCall& call, TileFunction<T> function) {
  constexpr Dim kLanes = 8;
  Shape shape;
  for (size_t i = 0; i + 1 < call.in.size(); ++i) {
    const Shape before = shape;
    broadcast_shapes(before, call.in[i].shape, &shape);
  }
  const int threads = call.backend.threads();
  Runner<T> runner = runner_of<T>(call, shape, 1, false, function);
  const Bytes held = runner.bytes();
  const int registers = runner.plan.registers;
  const Dim work = work_of(runner), pieces = (runner.total + kPiece - 1) / kPiece;
  const size_t outputs = call.out.size();
  const Bytes workspace = pieces * static_cast<Bytes>(outputs * sizeof(double));
  auto kernel = make_kernel(
      [=, runner = std::move(runner)](void* const* in, void* const* out, void* workspace) {
        auto* const sums = static_cast<double*>(workspace);  // (outputs, pieces)
        std::array<T, kMostStepOperands> fixed;
        runner.numbers(in, fixed.data());
        auto piece = [&](Dim p) {
          std::array<std::array<double, kLanes>, kMostUpdated> lanes{};
          runner.run(fixed.data(), in, out, p * kPiece, std::min(runner.total, (p + 1) * kPiece),
                     [&](const auto& at, Dim, Dim count) {
                       for (size_t o = 0; o < outputs; ++o) {
                         const T* x = at(runner.plan.outputs[o]);
                         auto& sum = lanes[o];
                         Dim i = 0;
                         for (; i + kLanes <= count; i += kLanes)
                           for (Dim l = 0; l < kLanes; ++l)
                             sum[static_cast<size_t>(l)] +=
                                 static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
                         for (; i < count; ++i)
                           sum[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
                       }
                     });
          for (size_t o = 0; o < outputs; ++o)
            sums[static_cast<Dim>(o) * pieces + p] = join_pairwise(lanes[o].data(), kLanes);
        };
        parallel_ranges(threads, pieces, work, [&](Dim begin, Dim end) {
          for (Dim p = begin; p < end; ++p) piece(p);
        });
        for (size_t o = 0; o < outputs; ++o)
          *static_cast<T*>(out[o]) =
              static_cast<T>(join_pairwise(sums + static_cast<Dim>(o) * pieces, pieces));
      },
      workspace);
  bill<T>(*kernel, held, registers, threads);
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> update_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  return update_kernel<float>(call, run_tile_simd);
}
std::unique_ptr<Kernel> update_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return update_kernel<T>(call, run_tile_plain<T>); });
}
std::unique_ptr<Kernel> sum_squares_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  return sums_kernel<float>(call, run_tile_simd);
}
std::unique_ptr<Kernel> sum_squares_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return sums_kernel<T>(call, run_tile_plain<T>); });
}

}  // namespace pl::cpu

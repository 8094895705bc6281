#include "execute/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "backend/cpu/host_memory.h"
#include "backend/cpu/parallel.h"

namespace pl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostSeconds = 0.35;    // of all measurements, but for one that has begun
constexpr double kPointSeconds = 0.008;  // of one
constexpr double kColdMs = 0.5e-3;       // of a call within a step: its code is not in the cache
constexpr int kLeastRuns = 3, kMostRuns = 200;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A call of an op on float32 operands that lie one behind another in the buffer.
class Call {
 public:
  Call(Backend& backend, const char* op, const Metas& in, char* buffer) : op_(get_op(op)) {
    const Metas out = op_.infer(in, {});
    cost_ = op_.cost(in, out, {});
    kernel_ = prepare(op_, {backend, in, out, {}});
    workspace_.resize(static_cast<size_t>(kernel_->workspace_bytes + backend.alignment()));
    for (const auto& [metas, list] : {std::pair{&in, &in_}, std::pair{&out, &out_}})
      for (const Meta& meta : *metas) {
        list->push_back(buffer);
        buffer += align_up(meta.bytes(), backend.alignment());
      }
    void* start = workspace_.data();
    size_t space = workspace_.size();
    workspace_at_ = std::align(static_cast<size_t>(backend.alignment()), 1, start, space);
  }

  const Cost& cost() const { return cost_; }

  // The least seconds of several runs: other work on the machine only adds.
  double seconds() {
    const auto start = Clock::now();
    double least = 1e30;
    run();
    for (int i = 0; i < kMostRuns; ++i) {
      const auto begin = Clock::now();
      run();
      least = std::min(least, seconds_since(begin));
      if (i + 1 >= kLeastRuns && seconds_since(start) > kPointSeconds) break;
    }
    return std::max(least, 1e-9);
  }

  void run() { kernel_->run(in_.data(), out_.data(), workspace_at_); }

 private:
  const Op& op_;
  Cost cost_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<void*> in_, out_;
  std::vector<char> workspace_;
  void* workspace_at_;
};

constexpr int64_t kMatmulSides[] = {320, 64, 640, 160};  // what says most comes first
constexpr Bytes kMatmulBytes = 3 * 640 * 640 * 4;

// Bytes of the memory points: in a core's cache, in the shared one, beyond it, and between.
std::vector<Bytes> footprints() {
  const long shared = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const Bytes beyond = std::clamp<Bytes>(3 * (shared > 0 ? shared : 0), 48 * kMiB, 96 * kMiB);
  return {768 * kKiB, 8 * kMiB, beyond, 96 * kKiB, 24 * kMiB, 3 * kMiB};
}

class Calibration {
 public:
  Calibration(Backend& backend, Bytes room)
      : backend_(backend), buffer_(std::clamp<Bytes>(room, kMiB, calibration_bytes())) {
    buffer_.prefault(std::min(kMatmulBytes, buffer_.bytes()));
  }

  Rates run() {
    Rates rates;
    measure_overheads(rates);
    measure_narrow(rates);
    const std::vector<Bytes> memory = footprints();
    for (size_t i = 0; i < std::max(memory.size(), std::size(kMatmulSides)); ++i) {
      if (i < std::size(kMatmulSides)) add_matmul(rates, kMatmulSides[i]);
      if (i < memory.size()) add_memory(rates, memory[i]);
    }
    smooth(rates);
    return rates;
  }

 private:
  // A larger matmul is no slower per FLOP, a larger footprint no faster per byte. A point that says
  // otherwise was disturbed by other work on the machine.
  static void smooth(Rates& rates) {
    for (size_t i = 1; i < rates.matmul.size(); ++i)
      rates.matmul[i].per_second =
          std::max(rates.matmul[i].per_second, rates.matmul[i - 1].per_second);
    for (size_t i = rates.memory.size(); i-- > 1;)
      rates.memory[i - 1].per_second =
          std::max(rates.memory[i - 1].per_second, rates.memory[i].per_second);
  }

  Call add_call(Bytes bytes) {
    const Meta meta{Dtype::float32, Shape{bytes / 3 / 64 * 16}};
    return Call(backend_, "add", {meta, meta}, buffer_.data());
  }

  // What a call costs that has nothing to do, and what waking the team adds. Within a step other
  // kernels run between two calls of one, so here one does too.
  void measure_overheads(Rates& rates) {
    Call nothing = add_call(192), other = add_call(768 * kKiB);
    std::array<double, 15> cold{};
    for (double& seconds : cold) {
      other.run();
      const auto begin = Clock::now();
      nothing.run();
      seconds = seconds_since(begin);
    }
    std::nth_element(cold.begin(), cold.begin() + cold.size() / 2, cold.end());
    rates.call_ms = kColdMs + 1e3 * cold[cold.size() / 2];
    const Bytes grain = 3 * kParallelGrain * static_cast<Bytes>(sizeof(float));
    const double alone = add_call(grain - 192).seconds();
    const double team = add_call(grain).seconds();
    rates.team_ms = 1e3 * std::max(0.0, team - alone / backend_.threads());
  }

  // How much faster a library multiplies bfloat16; slower where it has to be widened.
  void measure_narrow(Rates& rates) {
    constexpr int64_t kSide = 256;  // fits in the smallest buffer
    auto seconds = [&](Dtype dtype) {
      const Meta meta{dtype, Shape{kSide, kSide}};
      return Call(backend_, "matmul", {meta, meta}, buffer_.data()).seconds();
    };
    rates.narrow = std::clamp(seconds(Dtype::float32) / seconds(Dtype::bfloat16), 0.25, 8.0);
  }

  void add_matmul(Rates& rates, int64_t side) {
    const double flops = 2.0 * std::pow(side, 3);
    if (3 * side * side * 4 > buffer_.bytes() || too_long(rates.matmul, flops)) return;
    const Meta meta{Dtype::float32, Shape{side, side}};
    Call call(backend_, "matmul", {meta, meta}, buffer_.data());
    add_point(rates, rates.matmul, call.cost().flops, call.seconds());
  }
  void add_memory(Rates& rates, Bytes bytes) {
    if (bytes > buffer_.bytes() || too_long(rates.memory, static_cast<double>(bytes))) return;
    buffer_.prefault(bytes);
    Call call = add_call(bytes);
    add_point(rates, rates.memory, call.cost().bytes, call.seconds());
  }

  static void add_point(const Rates& rates, std::vector<Rates::Point>& points, double size,
                        double seconds) {
    // The model adds the overheads by itself.
    const double work = std::max(seconds - 1e-3 * rates.team_ms, seconds / 4);
    const auto at =
        std::lower_bound(points.begin(), points.end(), size,
                         [](const Rates::Point& point, double s) { return point.size < s; });
    points.insert(at, {size, size / work});
  }

  // Two points are always measured; more while time is left for them.
  bool too_long(const std::vector<Rates::Point>& points, double size) const {
    if (points.size() < 2) return false;
    const double expected = (kLeastRuns + 1) * size / points.back().per_second;
    return seconds_since(start_) + expected > kMostSeconds;
  }

  Clock::time_point start_ = Clock::now();
  Backend& backend_;
  Reservation buffer_;
};

}  // namespace

Rates calibrate(Backend& backend, Bytes room) { return Calibration(backend, room).run(); }

Bytes calibration_bytes() { return std::max(std::ranges::max(footprints()), kMatmulBytes); }

// Some core does a few GFLOP/s and wakes a team in a tenth of a millisecond; a team whose threads
// wait for other processes does neither.
bool plausible(const Rates& rates) {
  auto fastest = [](const std::vector<Rates::Point>& points) {
    double most = 0;
    for (const Rates::Point& point : points) most = std::max(most, point.per_second);
    return most;
  };
  return rates.matmul.size() >= 2 && rates.memory.size() >= 2 && rates.team_ms < 0.5 &&
         fastest(rates.matmul) > 2e9 && fastest(rates.memory) > 1e9;
}

}  // namespace pl

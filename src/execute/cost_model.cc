#include "execute/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "backend/cpu/parallel.h"

namespace pl {
namespace {

// How an op uses the machine: the share of the matmul rate that its FLOPs reach, of the streaming
// rate that its bytes reach, and what a library adds to each call. An op that is not listed is a
// loop over elements; a line here only makes the first guess of a new op better, since training
// times it. Shares were read off `plimsoll bench op/`.
struct Use {
  std::string_view op;
  double compute, memory, call_ms = 0;
};
constexpr Use kLoop{"", 0.25, 1};
constexpr double kLibraryMs = 4e-3;
constexpr std::array kUses{
    Use{"matmul", 0.95, 1, kLibraryMs},
    Use{"matmul_accumulate", 0.95, 1, kLibraryMs},
    Use{"batch_matmul", 0.95, 1, kLibraryMs},
    Use{"attention", 0.65, 1},
    Use{"attention_gradient", 0.65, 1},
    Use{"matmul_add", 0.95, 1, kLibraryMs},
    Use{"matmul_gelu_gradient", 0.95, 1, kLibraryMs},
    Use{"conv2d_input_gradient_add", 0.9, 1, kLibraryMs},
    Use{"linear_cross_entropy", 0.5, 1, kLibraryMs},
    Use{"linear_cross_entropy_accumulate", 0.5, 1, kLibraryMs},
    Use{"batch_norm", 0.4, 1},
    Use{"batch_moments", 0.4, 1},
    Use{"batch_norm_apply", 0.4, 1},
    Use{"batch_norm_add", 0.4, 1},
    Use{"batch_norm_gradient", 0.4, 1},
    Use{"batch_norm_relu_gradient", 0.4, 1},
    Use{"batch_norm_add_relu_gradient", 0.4, 1},
    Use{"layer_norm", 0.16, 0.8},
    Use{"layer_norm_gradient", 0.25, 0.8},
    Use{"layer_norm_parameter_gradient", 0.1, 0.5},
    Use{"conv2d", 0.95, 1, kLibraryMs},
    Use{"conv2d_input_gradient", 0.9, 1, kLibraryMs},
    Use{"conv2d_weight_gradient", 0.85, 1, kLibraryMs},
    Use{"max_pool", 0.25, 0.6},
    Use{"max_pool_gradient", 0.25, 0.5},
    Use{"gelu", 0.35, 1},
    Use{"gelu_gradient", 0.35, 1},
    Use{"log", 0.055, 1},
    Use{"sqrt", 0.03, 1},
    Use{"divide", 0.05, 0.7},
    Use{"softmax", 0.06, 1},
    Use{"softmax_gradient", 0.04, 1},
    Use{"sparse_softmax_cross_entropy", 0.03, 1},
    Use{"sparse_softmax_cross_entropy_gradient", 0.04, 1},
    Use{"softmax_cross_entropy", 0.01, 1},
    Use{"softmax_cross_entropy_gradient", 0.02, 1},
    Use{"reduce_sum", 0.1, 0.25},
    Use{"reduce_sum_accumulate", 0.1, 0.25},
    Use{"reduce_max", 0.05, 0.3},
    Use{"transpose", 1, 0.2},
    Use{"concatenate", 1, 0.5},
    Use{"slice", 1, 0.5},
    Use{"slice_gradient", 1, 0.5},
};

Use use_of(const Op& op) {
  const auto at =
      std::find_if(kUses.begin(), kUses.end(), [&](const Use& use) { return use.op == op.name; });
  return at == kUses.end() ? kLoop : *at;
}

double rate_at(const std::vector<Rates::Point>& points, double size) {
  if (size <= points.front().size) return points.front().per_second;
  for (size_t i = 1; i < points.size(); ++i) {
    const Rates::Point &a = points[i - 1], &b = points[i];
    if (size > b.size) continue;
    const double share = std::log(size / a.size) / std::log(b.size / a.size);
    return a.per_second * std::pow(b.per_second / a.per_second, share);
  }
  return points.back().per_second;
}

}  // namespace

Rates nominal_rates(int threads) {
  const double team = threads;
  // Memory beyond the caches is shared: a second core does not bring all of its own.
  const double shared = std::pow(team, 0.7);
  return {.matmul = {{5e5, 70e9 * shared}, {1e7, 100e9 * team}},
          .memory = {{256e3, 80e9 * team}, {4e6, 50e9 * team}, {64e6, 16e9 * shared}},
          .call_ms = 0.7e-3,
          .team_ms = threads > 1 ? 2e-3 : 0,
          .narrow = 1.8};
}

// A large GPU of today: what an H200 reaches in float32 without tensor cores, and `narrow` with
// them. A call is a launch within a recorded step.
Rates nominal_rates(const Backend& backend) {
  if (backend.device().kind != DeviceKind::cuda) return nominal_rates(backend.threads());
  return {.matmul = {{1e7, 2e12}, {1e9, 25e12}, {1e10, 40e12}},
          .memory = {{1e5, 0.1e12}, {1e7, 3e12}, {1e9, 3.8e12}},
          .call_ms = 2e-3,
          .team_ms = 0,
          .narrow = 18,
          .narrow_attention = 12};
}

double host_ms(Bytes bytes) {
  constexpr double kPerSecond = 38e9;  // both ways at a time, over PCI Express 5; an H200's
  return 1e3 * static_cast<double>(bytes) / kPerSecond;
}

Problem::Copies device_copies(Bytes room) {
  constexpr double kPerMs = 45e6;  // each way, both at once, over PCI Express 5 to an H200
  constexpr double kBeginMs = 0.01;
  constexpr double kBesideMs = 3e-10;  // of the device's own bandwidth
  constexpr Bytes kLeast = 1 * kMiB;   // shorter copies do not reach that rate
  return {.bytes_per_ms = kPerMs,
          .begin_ms = kBeginMs,
          .beside_ms = kBesideMs,
          .least = kLeast,
          .room = room};
}

double nominal_ms(const Op& op, const Cost& cost, const Backend& backend) {
  return roofline_ms(nominal_rates(backend), op, cost);
}

double roofline_ms(const Rates& rates, const Op& op, const Cost& cost) {
  if (!op.alias.empty()) return 0;
  const Use use = use_of(op);
  // Loops of ours widen 16-bit operands and compute in float32; attention is the library's on a
  // GPU.
  const bool attention = std::string_view(op.name).starts_with("attention");
  const double faster = !cost.narrow      ? 1
                        : use.call_ms > 0 ? rates.narrow
                        : attention       ? rates.narrow_attention
                                          : 1;
  const double compute = cost.flops / (rate_at(rates.matmul, cost.flops) * use.compute * faster);
  const double memory = cost.bytes / (rate_at(rates.memory, cost.bytes) * use.memory);
  constexpr double kTeamWork = static_cast<double>(kParallelGrain);
  const bool team = cost.flops > kTeamWork || cost.bytes > kTeamWork * sizeof(float);
  return 1e3 * std::max(compute, memory) + rates.call_ms + use.call_ms + (team ? rates.team_ms : 0);
}

double nominal_ms(const Op& op, const Cost& cost, int threads) {
  return roofline_ms(nominal_rates(threads), op, cost);
}

}  // namespace pl

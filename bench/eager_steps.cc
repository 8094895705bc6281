// Eager steps with a tape, 10,000 by default: time of each, and by how much resident memory grows
// behind the first hundred. Then the same step in pl::function.
//
//   eager_steps [steps]
#include "plimsoll.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "backend/cpu/host_memory.h"

namespace {

using namespace pl;

Tensor pattern(Shape shape, double factor) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(factor * std::sin(12.9898 * static_cast<double>(i)));
  return x;
}

template <class Step>
void measure(const char* name, int steps, const Step& step) {
  constexpr int kWarm = 100;
  for (int i = 0; i < kWarm; ++i) step();
  const Bytes before = process_resident();
  const auto start = std::chrono::steady_clock::now();
  float loss = 0;
  for (int i = 0; i < steps; ++i) loss = step().template data_as<float>()[0];
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  std::printf("%-9s %d steps, %.1f us each, loss %.6f, resident memory grew by %lld KiB\n", name,
              steps, time.count() / steps, static_cast<double>(loss),
              static_cast<long long>((process_resident() - before) / kKiB));
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 10000;
  Runtime runtime({.memory = "32MiB", .threads = 1});
  const Variable w1(pattern({32, 64}, 0.2)), b1(fill({64}, 0.0)), w2(pattern({64, 8}, 0.2)),
      b2(fill({8}, 0.0));
  const std::vector<Variable> weights{w1, b1, w2, b2};
  const Tensor x = pattern({32, 32}, 1), y = pattern({32, 8}, 0.5);
  auto step = [&](const Tensor& in, const Tensor& out) {
    GradientTape tape;
    const Tensor hidden = tanh(matmul(in, w1, {}, b1));
    const Tensor loss = reduce_mean(square(subtract(matmul(hidden, w2, {}, b2), out)));
    const Tensors gradients = tape.gradient(loss, weights);
    for (size_t i = 0; i < weights.size(); ++i) weights[i].assign_sub(scale(gradients[i], 0.05));
    return loss;
  };
  measure("eager", steps, [&] { return step(x, y); });
  auto traced = function(step);
  measure("function", steps, [&] { return traced(x, y); });
}

// A layer that accumulates in a loop, and what it becomes when the sum is taken first. The plan
// says what each of them costs before anything is trained.
#include "plimsoll.h"

#include <cstdio>

namespace {

using namespace pl;

constexpr Dim kWidth = 256;
constexpr int kTerms = 100;
double coefficient(int i) { return 1.0 / (1 + i); }

// y = sum over i of c_i * tanh(tanh(x * w) + i): every term has activations of its own.
class InALoop : public Layer {
 public:
  const char* kind() const override { return "InALoop"; }
  Shape build(const std::vector<Shape>& in) override {
    add_weight("kernel", {in[0].back(), kWidth}, "glorot_uniform");
    return {kWidth};
  }
  Tensor call(const LayerCall& call) const override {
    Tensor total;
    for (int i = 0; i < kTerms; ++i) {
      const Tensor h = tanh(matmul(call.in[0], call.weights[0]));
      const Tensor term = scale(tanh(h), coefficient(i));
      total = total.defined() ? add(total, term) : term;
    }
    return total;
  }
};

// The same: what does not depend on i is computed once, the coefficients are added up first.
class Reduced : public InALoop {
 public:
  const char* kind() const override { return "Reduced"; }
  Tensor call(const LayerCall& call) const override {
    double sum = 0;
    for (int i = 0; i < kTerms; ++i) sum += coefficient(i);
    return scale(tanh(tanh(matmul(call.in[0], call.weights[0]))), sum);
  }
};

void show(const char* name, LayerRef layer) {
  Sequential model(Shape{64}, {std::move(layer), Dense(10, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  const PlanReport plan = model.plan({.batch_size = 1024});
  std::printf("%-8s %4zu steps, %9s for tensors, %.1f ms predicted\n", name, plan.plan_steps,
              format_bytes(plan.arena).c_str(), plan.step_ms);
}

}  // namespace

int main() {
  try {
    show("loop", LayerRef(std::make_shared<InALoop>()));
    show("reduced", LayerRef(std::make_shared<Reduced>()));
  } catch (const Error& error) {
    std::fprintf(stderr, "reduced_layer: %s\n", error.what());
    return error.exit_code();
  }
}

// Gradient accumulation: four batches of 64 that train like one of 256, in three ways, and the
// widely copied way that does not.
//
//   gradient_accumulation [seed]
#include "plimsoll.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace pl;

namespace {

constexpr int64_t kBatch = 256, kParts = 4, kSmall = kBatch / kParts, kSteps = 40;

// Samples [begin, begin + count) of points in the plane; the label is the sector they lie in.
struct Points {
  Points(int64_t begin, int64_t count)
      : x({Dtype::float32, {count, 2}}), y({Dtype::int32, {count}}) {
    for (int64_t i = 0; i < count; ++i) {
      const double angle = 2.4 * static_cast<double>(begin + i);
      x.data_as<float>()[2 * i] = static_cast<float>(std::cos(angle));
      x.data_as<float>()[2 * i + 1] = static_cast<float>(std::sin(angle));
      y.data_as<int32_t>()[i] = static_cast<int32_t>(angle / 1.5707963) % 4;
    }
  }
  Tensor x, y;
};

// All start from the same weights, a pattern without symmetry.
Sequential start(uint64_t seed, int64_t accumulation_steps = 0) {
  Sequential model(Shape{2}, {Dense(16, {.activation = "tanh"}), Dense(4)});
  SGDOptions sgd{.learning_rate = 0.5};
  if (accumulation_steps) sgd.gradient_accumulation_steps = accumulation_steps;
  model.compile({.optimizer = SGD(sgd),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  Tensors weights = model.get_weights();
  for (const Tensor& weight : weights)
    for (Dim i = 0; i < weight.shape().elements(); ++i)
      weight.data_as<float>()[i] = static_cast<float>(
          std::sin(12.9898 * static_cast<double>(i + 1) + static_cast<double>(seed)));
  model.set_weights(weights);
  return model;
}

// A loop of one's own. The loss is a mean over its batch, so the mean of the parts' gradients is
// the gradient of the whole. `zero_every_step`: the mistake. The accumulator is made new inside the
// inner loop, so that three parts of four are forgotten.
void own_loop(Model& model, bool zero_every_step) {
  Runtime runtime({.memory = "64MiB", .threads = 1});
  const std::vector<Variable> weights = model.trainable_variables();
  for (int64_t step = 0; step < kSteps; ++step) {
    Tensors sum(weights.size());
    for (int64_t part = 0; part < kParts; ++part) {
      if (zero_every_step) sum.assign(weights.size(), {});
      const Points points(step * kBatch + part * kSmall, kSmall);
      GradientTape tape;
      const Tensor logits = model(points.x, true);
      const Tensor loss = reduce_mean(sparse_softmax_cross_entropy(logits, points.y).loss);
      const Tensors gradients = tape.gradient(loss, weights);
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] = sum[i].defined() ? add(sum[i], gradients[i]) : gradients[i];
    }
    GradientsAndVariables update;
    for (size_t i = 0; i < sum.size(); ++i)
      update.push_back({scale(sum[i], 1.0 / kParts), weights[i]});
    model.optimizer().apply_gradients(update);
  }
}

// The loss on all samples, and how far the weights are from `wanted` at most.
void report(const char* name, Model& model, const Points& all, const Tensors& wanted) {
  const Tensors weights = model.get_weights();
  double apart = 0;
  for (size_t w = 0; w < weights.size(); ++w)
    for (Dim i = 0; i < weights[w].shape().elements(); ++i)
      apart = std::max<double>(
          apart, std::abs(weights[w].data_as<float>()[i] - wanted[w].data_as<float>()[i]));
  std::printf("%-34s loss %.4f, weights differ by %.1e\n", name,
              model.evaluate(all.x, all.y)["loss"], apart);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const Points all(0, kSteps * kBatch);
    FitOptions big{.batch_size = kBatch, .verbose = 0, .shuffle = false, .threads = 1}, small = big,
                                                                                        parts = big;
    small.batch_size = kSmall;
    parts.split = kParts;

    Sequential wanted = start(seed), accumulated = start(seed, kParts), split = start(seed),
               own = start(seed), wrong = start(seed);
    wanted.fit(all.x, all.y, big);
    const Tensors weights = wanted.get_weights();
    report("batches of 256", wanted, all, weights);
    accumulated.fit(all.x, all.y, small);  // Keras's option of the optimiser
    report("gradient_accumulation_steps = 4", accumulated, all, weights);
    split.fit(all.x, all.y, parts);  // what the planner does by itself when memory is short
    report("batches of 256, worked off in 4", split, all, weights);
    own_loop(own, false);
    report("a loop with an accumulator", own, all, weights);
    own_loop(wrong, true);
    report("the accumulator zeroed every step", wrong, all, weights);
  } catch (const Error& error) {
    std::fprintf(stderr, "gradient_accumulation: %s\n", error.what());
    return error.exit_code();
  }
}

// A training loop of one's own: a step with a GradientTape, traced once by pl::function, over the
// batches of a data set.
//
//   custom_training [seed]
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace pl;

// Points of the plane; the label says whether one lies inside of a circle.
struct Points {
  explicit Points(Dim count) : x({Dtype::float32, {count, 2}}), y({Dtype::int32, {count}}) {
    for (Dim i = 0; i < count; ++i) {
      const double radius = std::sqrt(static_cast<double>(i % 97) / 97) * 2, angle = 2.4 * i;
      x.data_as<float>()[2 * i] = static_cast<float>(radius * std::cos(angle));
      x.data_as<float>()[2 * i + 1] = static_cast<float>(radius * std::sin(angle));
      y.data_as<int32_t>()[i] = radius < 1.2;
    }
  }
  Tensor x, y;
};

// Weights of a layer, from a small pattern without symmetry.
Variable weight(Shape shape, const char* name, double phase) {
  Tensor start({Dtype::float32, shape});
  for (Dim i = 0; i < shape.elements(); ++i)
    start.data_as<float>()[i] = static_cast<float>(std::sin(12.9898 * (i + 1) + phase) * 2);
  return Variable(start, {.name = name});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const double seed = argc > 1 ? std::atof(argv[1]) : 0;
    Runtime runtime({.memory = "64MiB", .threads = 1});
    constexpr Dim kBatch = 64;
    const auto data = tensor_source(Points(1024).x, Points(1024).y);
    const Variable w1 = weight({2, 32}, "w1", seed), w2 = weight({32, 2}, "w2", seed),
                   b1 = weight({32}, "b1", seed), b2(fill({2}, 0.0), {.name = "b2"});

    auto train_step = pl::function(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor hidden = tanh(matmul(x, w1, {}, b1));
          const Tensor logits = matmul(hidden, w2, {}, b2);
          const Tensor loss = reduce_mean(sparse_softmax_cross_entropy(logits, y).loss);
          const std::vector<Variable> weights{w1, b1, w2, b2};
          const Tensors gradients = tape.gradient(loss, weights);
          for (size_t i = 0; i < weights.size(); ++i)
            weights[i].assign_sub(scale(gradients[i], 0.5));
          return loss;
        },
        {.name = "train_step"});

    Tensor x({Dtype::float32, {kBatch, 2}}), y({Dtype::int32, {kBatch}});
    std::vector<int64_t> indices(kBatch);
    for (int epoch = 1; epoch <= 60; ++epoch) {
      double sum = 0;
      for (int64_t begin = 0; begin < data->size(); begin += kBatch) {
        for (int64_t i = 0; i < kBatch; ++i) indices[static_cast<size_t>(i)] = begin + i;
        void* places[] = {x.data(), y.data()};
        data->read(indices, places);
        sum += train_step(x, y).data_as<float>()[0];
      }
      if (epoch % 20 == 0)
        std::printf("epoch %d: loss %.4f\n", epoch,
                    sum / static_cast<double>(data->size() / kBatch));
    }
    std::printf("traced %lld time(s), %s while it runs\n",
                static_cast<long long>(train_step.traces()),
                format_bytes(train_step.plan().arena).c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "custom_training: %s\n", error.what());
    return error.exit_code();
  }
}

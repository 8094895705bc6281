// keras.random: numbers that losses, layers and steps of one's own draw. In call() of a layer or
// model, and in train_step(), they follow from fit()'s seed, the step and the place of the call, so
// that a run can be repeated and resumed; on values and in pl::function they are new in every call.
//
//   const Tensor noise = random::normal({batch, latent});
//   return mean + ops::exp(0.5 * log_var) * random::normal_like(mean);
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "op/ops.h"

namespace pl {

namespace random {

// Numbers that differ from draw to draw, of a sequence that the seed names.
struct SeedGenerator {
  explicit SeedGenerator(uint64_t of) : seed(of) {}
  uint64_t seed;
};

// As in Keras: none; a number, which gives the same numbers in every call and step; or a generator.
struct Seed {
  Seed() = default;
  Seed(std::integral auto seed) : number(static_cast<uint64_t>(seed)), repeats(true) {}
  Seed(const SeedGenerator& generator) : number(generator.seed) {}
  std::optional<uint64_t> number;
  bool repeats = false;
};

struct NormalOptions {
  double mean = 0;
  double stddev = 1;
  Dtype dtype = Dtype::float32;
  Seed seed = {};
};
Tensor normal(const Shape& shape, const NormalOptions& options = {});

struct UniformOptions {
  double minval = 0;
  double maxval = 1;  // not among the numbers
  Dtype dtype = Dtype::float32;
  Seed seed = {};
};
Tensor uniform(const Shape& shape, const UniformOptions& options = {});

// Of the shape and dtype of x. Where its rows are the samples of a batch, those of the result are
// too, so that the batch may be split.
Tensor normal_like(const Tensor& x, const NormalOptions& options = {});
Tensor uniform_like(const Tensor& x, const UniformOptions& options = {});

// int32 in [minval, maxval).
Tensor randint(const Shape& shape, int64_t minval, int64_t maxval, const Seed& seed = {});
// A class for each row of logits (N, classes), num_samples times: int32 (N, num_samples).
Tensor categorical(const Tensor& logits, int64_t num_samples, const Seed& seed = {});
Tensor dropout(const Tensor& x, double rate, const Seed& seed = {});
// In another order along the axis, the same for all other elements.
Tensor shuffle(const Tensor& x, int64_t axis = 0, const Seed& seed = {});

}  // namespace random
}  // namespace pl

// Initialisers, with Keras's names and distributions. Values depend on the seed, the weight's path
// and the element alone, so that they can be written straight into the arena.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace pl {

// An initialiser is a text (model/spec.h): "glorot_uniform", "random_normal:0.02",
// "variance_scaling:scale=2,mode=fan_out". The functions below write such texts.
// With a seed, values depend on that and the element alone: weights of one shape are equal.
namespace initializers {

using Seed = std::optional<uint64_t>;
struct SeedOptions {
  Seed seed = {};
};
std::string Zeros();
std::string Ones();
std::string Constant(double value = 0);
struct NormalOptions {
  double mean = 0;
  double stddev = 0.05;
  Seed seed = {};
};
std::string RandomNormal(NormalOptions options = {});
std::string TruncatedNormal(NormalOptions options = {});  // within two deviations of the mean
struct RandomUniformOptions {
  double minval = -0.05;
  double maxval = 0.05;
  Seed seed = {};
};
std::string RandomUniform(RandomUniformOptions options = {});
struct VarianceScalingOptions {
  double scale = 1;
  std::string mode = "fan_in";                    // or "fan_out", "fan_avg"
  std::string distribution = "truncated_normal";  // or "untruncated_normal", "uniform"
  Seed seed = {};
};
std::string VarianceScaling(VarianceScalingOptions options = {});
std::string GlorotUniform(SeedOptions options = {});
std::string GlorotNormal(SeedOptions options = {});
std::string HeUniform(SeedOptions options = {});
std::string HeNormal(SeedOptions options = {});
std::string LecunUniform(SeedOptions options = {});
std::string LecunNormal(SeedOptions options = {});
// Of at least two dimensions; the last counts columns.
std::string Orthogonal(double gain = 1, SeedOptions options = {});
std::string UnitForget();  // an LSTM's bias: ones for the forget gate, the second of four
std::string Identity(double gain = 1);  // of two dimensions
// These numbers, in order.
std::string Values(const std::vector<double>& values);

}  // namespace initializers

void check_initializer(const std::string& name);  // throws UserError listing the known ones

// The same initialiser for a weight whose fans do not follow from its shape, such as (D, heads, d).
// Without effect on those that do not scale with fans.
std::string with_fans(const std::string& initializer, int64_t fan_in, int64_t fan_out);

// Fills `data` (float32 or float64) of the given meta.
void initialize(const std::string& name, const Meta& meta, uint64_t seed, const std::string& path,
                void* data);

}  // namespace pl

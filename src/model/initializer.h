// Initialisers, with Keras's distributions. Values depend on the seed, the weight's path and the
// element alone, so that they can be written straight into the arena.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/shape.h"

namespace pl {

// "zeros", "ones", "glorot_uniform", "he_uniform", "he_normal", "glorot_normal", "random_uniform"
// or "uniform" (+-0.05), "random_normal" or "normal" (standard deviation 0.05). Of the last ones
// the width may follow: "random_normal:0.02".
void check_initializer(const std::string& name);  // throws UserError listing the known ones

// Fills `data` (float32 or float64) of the given meta.
void initialize(const std::string& name, const Meta& meta, uint64_t seed, const std::string& path,
                void* data);

}  // namespace pl

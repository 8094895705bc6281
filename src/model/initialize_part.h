// Part of a weight's initial values, so that several threads can make a large one.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "tensor/shape.h"

namespace pl {

// Elements [first, end) of a weight; by default all.
struct ElementRange {
  int64_t first = 0, end = std::numeric_limits<int64_t>::max();
};

// As initialize() of initializer.h. Initialisers whose numbers depend on each other (orthogonal)
// fill all where the range has the first element, else none.
void initialize_part(const std::string& name, const Meta& meta, uint64_t seed,
                     const std::string& path, void* data, ElementRange range);

}  // namespace pl

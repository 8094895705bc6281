// A source whose samples a function makes when they are needed: a generator with a signature.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/source.h"

namespace pl {

// Makes sample `index` in place: field f goes to destinations[f], or is left out where that is
// null.
using SampleFunction = std::function<void(int64_t index, std::span<void* const> destinations)>;

// `size` samples of these fields. The function is asked by index, from one thread at a time, so
// that shuffling and going on from a checkpoint cost nothing; the same index must give the same
// sample. int32 fields have a range, which is checked as samples come: DataError. `resident`: bytes
// that the function holds.
std::unique_ptr<Source> function_source(std::vector<Field> fields, int64_t size,
                                        SampleFunction function, Bytes resident = 0);

}  // namespace pl

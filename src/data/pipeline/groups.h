// What the stages that put elements together share.
#pragma once

#include <string>

#include "base/error.h"
#include "data/pipeline/stage.h"

namespace pl {

// How many groups of `size` there are of `count` elements.
inline int64_t groups(int64_t count, int64_t size, bool drop) {
  if (count < 0) return count;
  return drop ? count / size : count / size + (count % size != 0);
}

inline Stage::Rows rows_of(int64_t samples, int64_t size, bool drop) {
  if (samples < 0) return {size, -1, samples == kInfiniteCardinality};
  return {size, drop ? samples / size * size : samples, false};
}

// Of so many rows of a known spec.
inline Bytes rows_bytes(const ElementSpec& spec, int64_t rows) {
  Bytes sum = 0;
  for (const FieldSpec& field : spec.fields) sum += granted(times(rows, field.known_bytes()));
  return sum;
}

inline void expect_positive(const char* stage, const char* what, int64_t value) {
  if (value < 1 || value > (int64_t{1} << 31))
    throw UserError("[data] " + std::string(stage) + ": " + what +
                    ": expected a number from 1 to 2^31, received " + std::to_string(value));
}

}  // namespace pl

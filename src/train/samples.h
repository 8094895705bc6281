// What a source's samples are to a model: shapes brought together by Keras's rules, labels checked
// before the first step.
#pragma once

#include "data/source.h"
#include "train/step_trace.h"

namespace pl {

// A trailing dimension of 1 is added or dropped where that makes `given` into `wanted`; otherwise
// `given` comes back as it is, for a message.
Shape match_trailing_one(const Shape& given, const Shape& wanted);

// How the network reads the source: shapes matched; dtypes are the source's. Tracing refuses what
// does not match. A source without y is for predicting only.
SampleSpec sample_of(const Source& source, const Network& network, const Compiled& compiled,
                     double x_scale);

// Throws DataError unless every integer label is in [0, classes).
void check_labels(const Source& source, int64_t classes);

}  // namespace pl

// What a source's samples are to a model: shapes brought together by Keras's rules, labels checked
// before the first step.
#pragma once

#include "data/source.h"
#include "train/step_trace.h"

namespace pl {

// A trailing dimension of 1 is added or dropped where that makes `given` into `wanted`; otherwise
// `given` comes back as it is, for a message.
Shape match_trailing_one(const Shape& given, const Shape& wanted);

// The fields of a source that are such.
std::vector<const Field*> fields_of(const Source& source, Role role);

// How the network reads the source: shapes matched; dtypes are the source's. Tracing refuses what
// does not match. A source without y is for predicting only.
SampleSpec sample_of(const Source& source, const Network& network, const Compiled& compiled,
                     double x_scale);

// Throws DataError, with the first sample that is wrong, unless every label that a loss indexes
// with is below its classes.
void check_labels(Source& source, const Network& network, const Compiled& compiled);
// The same for the tokens of a network that reads tokens; nothing for others.
void check_tokens(Source& source, const Network& network);

// What samples look like that are made for the model: x in its dtype or as tokens, y as its loss
// wants it.
SampleSpec wanted_sample(const Network& network, const Compiled& compiled);

// Such samples with integer labels: random ones, and for tokens the next token as target.
SyntheticSpec synthetic_spec(const Network& network, const Compiled& compiled, int64_t samples,
                             uint64_t seed);

}  // namespace pl

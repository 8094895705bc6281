// What a source's samples are to a model: shapes brought together by Keras's rules, labels checked
// before the first step.
#pragma once

#include "data/source.h"
#include "train/step_trace.h"

namespace pl {

// The fields of a source that are such.
std::vector<const Field*> fields_of(const Source& source, Role role);

// How the network reads the source: shapes of x matched; targets as they are, which is what metrics
// and train_step see in Keras; dtypes are the source's. Tracing refuses what does not match. A
// source without y is for predicting only.
SampleSpec sample_of(const Source& source, const Network& network, double x_scale);
// The same of data beside others: targets that differ by a last dimension of 1 take their shape.
SampleSpec sample_like(const SampleSpec& other, const Source& source, const Network& network);

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

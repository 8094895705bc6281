// Where a loss that is not finite comes from.
#pragma once

#include <string>

#include "data/source.h"
#include "train/session.h"

namespace pl {

// Runs the forward half of a step again, whose batch has just been read anew, and answers what is
// not finite first: a weight, a sample's input, or the output of a layer. "" when all is finite up
// to the loss.
std::string find_non_finite(Session& session, size_t signature, const StepParams& params,
                            std::span<const int64_t> samples);

}  // namespace pl

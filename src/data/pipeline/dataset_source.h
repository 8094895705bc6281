// A Dataset of batches as what training reads: a Source that is read in order.
#pragma once

#include <memory>

#include "data/pipeline/dataset.h"
#include "data/source.h"

namespace pl {

// Elements are x, or x and y, or x, y and sample weights, each with the samples along its first
// dimension. `steps`: batches of an epoch where the data do not end or their number is not known;
// 0: one pass. resident_bytes() is the pipeline's budget with its threads. Throws UserError for
// what cannot be planned before it is seen, DoesNotFit as Dataset::budget().
std::unique_ptr<Source> dataset_source(const Dataset& dataset, int64_t steps = 0);

}  // namespace pl

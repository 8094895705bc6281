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

// The other way round: a Source's samples as elements, by index. One thread at a time reads it.
// `key`: which one it is, for snapshots.
Dataset source_dataset(std::shared_ptr<Source> source, const std::string& key = {});

// Single samples that can be got by index (no batches), as a Source like any other: training
// batches and shuffles. A batch is made by `threads` threads when it is read, each sample in its
// place, so nothing is held between steps, and cores that train do not share them with cores that
// read.
// `labels`: the range of y where it is known; otherwise labels are checked as they are read.
std::unique_ptr<Source> indexed_source(const Dataset& samples, int threads,
                                       std::optional<ValueRange> labels = {});

}  // namespace pl

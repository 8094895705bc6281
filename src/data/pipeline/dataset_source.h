// A Dataset of batches as what training reads: a Source that is read in order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/on_error.h"
#include "data/pipeline/dataset.h"
#include "data/source.h"

namespace pl {

// Elements are x, or x and y, or x, y and sample weights, each with the samples along its first
// dimension. `steps`: batches of an epoch where the data do not end or their number is not known;
// 0: one pass; data of unknown number are then read through once to count them. resident_bytes() is
// the pipeline's budget with its threads. Throws UserError for what cannot be planned before it is
// seen, DoesNotFit as Dataset::budget().
std::unique_ptr<Source> dataset_source(const Dataset& dataset, int64_t steps = 0);

// The other way round: a Source's samples as elements, by index. One thread at a time reads it.
// `key`: which one it is, for snapshots.
Dataset source_dataset(std::shared_ptr<Source> source, const std::string& key = {});

// Single samples that can be got by index (no batches), as a Source like any other: training
// batches and shuffles. A batch is made by `threads` threads when it is read, each sample in its
// place, so nothing is held between steps, and cores that train do not share them with cores that
// read.
struct IndexedOptions {
  int threads = 1;
  std::string name = {};  // for messages; empty: the last stage's
  // Of each field, where it is known; otherwise labels are checked as they are read.
  std::vector<std::optional<ValueRange>> ranges = {};
  // The place of a sample that raises DataError is taken by the next good one; it is named on
  // stderr and counted.
  bool skip_errors = false;
};
std::unique_ptr<Source> indexed_source(const Dataset& samples, const IndexedOptions& options = {});
// The samples of a Source through a pipeline, straight to where they are wanted: what is known of
// its values stays known.
std::unique_ptr<Source> through_pipeline(std::unique_ptr<Source> source,
                                         OnError on_error = OnError::stop);

}  // namespace pl

// The page of `plimsoll data --html`: figures, stages and sample batches, in one file that needs no
// other.
#pragma once

#include <string>
#include <vector>

#include "data/pipeline/dataset.h"

namespace pl {

// What one sample of a batch looks like: a picture where a field is an image, and the other fields'
// first numbers.
struct SampleView {
  std::string png;  // a file's bytes; empty: no image
  std::string text;
};

// The first samples of a batch (or the one element that is none), at most `most`. Pictures are at
// most 128 pixels wide and high. Holds no part of the element afterwards.
std::vector<SampleView> view_samples(const ElementSpec& spec, const Element& element, bool batched,
                                     size_t most);

struct DataPage {
  std::string source;
  int64_t samples = 0;
  double seconds = 0, rate = 0;
  std::string limited_by;  // a stage; empty: none
  PipelineReport report;
  std::vector<std::vector<SampleView>> batches;
};
std::string to_html(const DataPage& page);

}  // namespace pl

// What `plimsoll data SOURCE` and `--data SOURCE` read, found by the name and what lies there.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "data/image/image.h"
#include "data/pipeline/dataset.h"

namespace pl {

struct OpenedData {
  Dataset samples;
  bool lines = false;              // texts of different lengths, to be padded
  std::vector<std::string> notes;  // for people: what was found and what was passed over
};
OpenedData open_samples(const DataOptions& options);  // throws DataError

// The tar shards of a training run: a file, a pattern, or a folder of them; none: it is no such.
std::vector<std::string> tar_shards(const std::string& source);

}  // namespace pl

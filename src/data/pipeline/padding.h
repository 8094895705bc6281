// Rows of different lengths in one batch: what they become, and the batch.
#pragma once

#include <string>
#include <vector>

#include "data/pipeline/stages.h"

namespace pl {

// What rows become: their shapes, kUnknown for the longest among them, and what is beyond them.
struct Padding {
  ElementSpec row;
  std::vector<double> values;

  std::string text() const;  // of the values
};

// Of rows of `in`; the values are taken out of the facts. Throws UserError for shapes and values
// that are not theirs.
Padding padding_of(const std::string& stage, const ElementSpec& in, PadFacts& facts);

// One batch, of at most `bound` bytes. Throws DataError.
Element pad_rows(const std::string& stage, const Padding& padding, const std::vector<Element>& rows,
                 Bytes bound);

}  // namespace pl

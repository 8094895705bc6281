// A Source over arrays on disk; what the IDX and .npz sources are made of.
#pragma once

#include <memory>
#include <string>

#include "data/disk_array.h"
#include "data/source.h"

namespace pl {

// Both arrays count samples by their first dimension. Integer y become int32 labels, and (N, 1)
// labels become one label a sample. Integer arrays wider than a byte, and labels, are read once to
// know their range. Throws DataError when counts differ, there is no sample, or a label is negative
// or above int32.
std::unique_ptr<Source> array_source(std::string name, DiskArray x, DiskArray y);
std::unique_ptr<Source> array_source(std::string name, DiskArray x);  // without y

}  // namespace pl

// IDX files (MNIST's format): two zero bytes, a type, a rank, big-endian dimensions, the data.
#pragma once

#include <string>

#include "data/disk_array.h"

namespace pl {

// Opens an IDX file of unsigned bytes, plain or gzip (inflated to the cache). The data must be as
// long as the dimensions say; throws DataError otherwise.
DiskArray open_idx(const std::string& path);

}  // namespace pl

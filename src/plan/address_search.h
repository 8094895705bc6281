// The exact part of address assignment: is there room within a given height?
#pragma once

#include "plan/storage.h"

namespace pl {

// Sets the offsets of all blocks so that none ends above `capacity` and answers true; or answers
// false, the offsets unchanged, when there is no such assignment or `visits` of blocks were not
// enough.
bool fit_within(std::vector<StorageBlock>& blocks, Bytes capacity, int64_t visits);

}  // namespace pl

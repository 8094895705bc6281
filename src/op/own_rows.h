// own_rows: the image rows that a band answers for; the rest, which it has for their neighbours'
// sake, become zero. Where one sample is worked off in bands, each row counts in exactly one.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kOwnRows;

namespace cpu {
std::unique_ptr<Kernel> own_rows_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

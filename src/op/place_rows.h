// place_rows: the rows that a band answers for, put where they belong in the whole image. The image
// fills up band by band, outside of the step's own bytes.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kPlaceRows;

namespace cpu {
std::unique_ptr<Kernel> place_rows_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl

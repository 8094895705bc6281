// Keras's rule for samples and targets that differ from what is wanted by a last dimension of 1.
#pragma once

#include "tensor/shape.h"

namespace pl {

// A trailing dimension of 1 is added or dropped where that makes `given` into `wanted`; otherwise
// `given` comes back as it is, for a message.
Shape match_trailing_one(const Shape& given, const Shape& wanted);

}  // namespace pl

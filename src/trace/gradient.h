// Reverse-mode gradients: walks a traced graph backwards and appends gradient nodes to it.
#pragma once

#include "op/recorder.h"

namespace pl {

// d(root)/d(wrt[i]), contracted with `seed` (the gradient of root itself, same shape and dtype).
// Nodes are appended to the recorder of `root`, weight gradients before input gradients. A tensor
// that root does not depend on gets an undefined gradient. Throws UserError when an op on the way
// has none.
Tensors gradients(const Tensor& root, const Tensors& wrt, const Tensor& seed);

}  // namespace pl

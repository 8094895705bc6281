// Fills the inputs of a sample (op.h). The numbers depend on the names of op and sample and on the
// element's place alone, so that answers computed elsewhere can be stored.
#pragma once

#include "op/op.h"
#include "op/step_params.h"

namespace pl {

// A sample's metas and attributes with float32 replaced by `real`, float32 or float64; so is an
// attribute dtype=float32.
Metas sample_metas(const Sample& sample, Dtype real);
Attrs sample_attrs(const Sample& sample, Dtype real);

// Values that float32 holds exactly; the same numbers whatever `real` is. Reals filled as normal or
// positive are at least 0.05 away from 0 and, in samples of up to 65,536 of them, all different in
// size: no finite difference crosses a kink or a tie.
Tensors sample_inputs(const Op& op, const Sample& sample, Dtype real = Dtype::float32);

// What an input filled as step_params holds.
StepParams sample_step_params(const Sample& sample);

// Identifies inputs and attributes, to tell a stored answer that no longer belongs to its sample.
uint64_t sample_hash(const Op& op, const Sample& sample);

}  // namespace pl

// Measures the few rates that the cost model needs, in half a second at most.
#pragma once

#include "execute/cost_model.h"

namespace pl {

// `room`: bytes that the buffers may take; the largest footprints are left out where it is less.
Rates calibrate(Backend& backend, Bytes room);

// False for what another process's load has spoiled: not to be kept.
bool plausible(const Rates& rates);

// What calibrate() takes with all the room it wants.
Bytes calibration_bytes();

}  // namespace pl

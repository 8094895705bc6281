#pragma once

namespace pl {

// libgomp reads its environment before main, so the wait policy can only be set for a new process
// image: replaces this one, once, by itself with GOMP_SPINCOUNT=1000. Threads then sleep soon after
// a parallel region instead of taking a core from whoever else runs. Leaves a policy that the user
// set alone.
void respawn_with_short_spin(char** argv);

}  // namespace pl

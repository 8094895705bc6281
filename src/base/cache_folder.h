// Where what can be made again is kept between runs: inflated data, measured times.
#pragma once

#include <string>

namespace pl {

// $PLIMSOLL_CACHE, $XDG_CACHE_HOME/plimsoll or ~/.cache/plimsoll; empty when none is set.
std::string cache_folder();

// The value of a variable of the environment, empty when it is not set.
std::string environment(const char* name);

}  // namespace pl

// Compiled into the program and into the library: a digest of all headers that both were built
// from.
#pragma once

#include <string_view>

namespace pl {

std::string_view cuda_interface();

}  // namespace pl

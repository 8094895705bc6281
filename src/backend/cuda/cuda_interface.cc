#include "backend/cuda/cuda_interface.h"

namespace pl {

std::string_view cuda_interface() { return PLIMSOLL_INTERFACE " " __VERSION__; }

}  // namespace pl

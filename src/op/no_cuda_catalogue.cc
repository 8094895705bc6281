#include "op/cuda_catalogue.h"

namespace pl {

std::span<const CudaVariant> cuda_variants() { return {}; }

}  // namespace pl

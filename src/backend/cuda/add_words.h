#pragma once

#include <cstdint>
#include <span>

struct CUstream_st;

namespace pl::cuda {

// to[i] = from[i] + add[i], 8 words at most, in order with the stream.
void add_words(CUstream_st* stream, int64_t* to, const int64_t* from, std::span<const int64_t> add);

// Whether our kernels were compiled for the device that is current.
bool has_code_for_device();

}  // namespace pl::cuda

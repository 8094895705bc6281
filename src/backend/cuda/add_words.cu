#include <cuda_runtime.h>

#include "backend/cuda/add_words.h"

namespace pl::cuda {
namespace {

struct Words {
  int64_t word[8];
};

__global__ void add_words_kernel(int64_t* to, const int64_t* from, Words add, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = from[i] + add.word[i];
}

}  // namespace

bool has_code_for_device() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, add_words_kernel) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

void add_words(CUstream_st* stream, int64_t* to, const int64_t* from,
               std::span<const int64_t> add) {
  Words words{};
  for (size_t i = 0; i < add.size() && i < 8; ++i) words.word[i] = add[i];
  add_words_kernel<<<1, 32, 0, stream>>>(to, from, words, static_cast<int>(add.size()));
}

}  // namespace pl::cuda

// A stable sort of places by 32-bit keys, digit by digit of eight bits.
#pragma once

#include "op/cuda/device-inl.cuh"

namespace pl::cuda {

inline constexpr int kSortThreads = 1024, kSortWarps = kSortThreads / 32;
inline constexpr int kDigits = 256;

// How many of a chunk's keys have each digit: counts (digits, chunks).
static __global__ void __launch_bounds__(kSortThreads)
    count_digits(const uint32_t* keys, uint32_t* counts, int64_t count, int shift) {
  __shared__ uint32_t shared[kDigits];
  if (threadIdx.x < kDigits) shared[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i < count) atomicAdd(&shared[(keys[i] >> shift) & (kDigits - 1)], 1u);
  __syncthreads();
  if (threadIdx.x < kDigits) counts[threadIdx.x * gridDim.x + blockIdx.x] = shared[threadIdx.x];
}

// counts[i] becomes the sum of those before it; one block.
static __global__ void __launch_bounds__(1024) sum_before(uint32_t* counts, int64_t total) {
  __shared__ uint32_t warps[32];
  __shared__ uint32_t before;
  if (threadIdx.x == 0) before = 0;
  for (int64_t first = 0; first < total; first += 1024) {
    const int64_t i = first + threadIdx.x;
    const uint32_t own = i < total ? counts[i] : 0;
    uint32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (threadIdx.x % 32 >= static_cast<unsigned>(step)) sum += other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t start = before;
    for (unsigned w = 0; w < threadIdx.x / 32; ++w) start += warps[w];
    if (i < total) counts[i] = start + sum - own;
    __syncthreads();
    if (threadIdx.x == 1023) before = start + sum;
  }
}

// Each key to its place: those with smaller digits, those of earlier chunks, those before it here.
static __global__ void __launch_bounds__(kSortThreads)
    place_keys(const uint32_t* keys, const uint32_t* places, const uint32_t* starts,
               uint32_t* sorted_keys, uint32_t* sorted_places, int64_t count, int shift) {
  __shared__ uint16_t of_warp[kSortWarps][kDigits];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int k = static_cast<int>(threadIdx.x); k < kSortWarps * kDigits; k += kSortThreads)
    (&of_warp[0][0])[k] = 0;
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  const bool exists = i < count;
  const uint32_t key = exists ? keys[i] : 0;
  // Lanes without a key have a digit that no other has.
  const uint32_t digit = exists ? (key >> shift) & (kDigits - 1) : kDigits;
  const uint32_t same = __match_any_sync(0xffffffffu, digit);
  const uint32_t lane = threadIdx.x % 32, earlier = same & ((1u << lane) - 1);
  if (exists && earlier == 0) of_warp[warp][digit] = static_cast<uint16_t>(__popc(same));
  __syncthreads();
  if (!exists) return;
  uint32_t at = starts[digit * gridDim.x + blockIdx.x] + __popc(earlier);
  for (int w = 0; w < warp; ++w) at += of_warp[w][digit];
  sorted_keys[at] = key;
  sorted_places[at] = places[i];
}

// Lists of `count` keys and places, and room to sort them, in a workspace. The sorted ones are where
// `keys` and `places` then point.
struct SortSpace {
  SortSpace(void* workspace, int64_t count)
      : count(count),
        keys(static_cast<uint32_t*>(workspace)),
        places(keys + count),
        other_keys_(places + count),
        other_places_(other_keys_ + count),
        counts_(other_places_ + count) {}
  // uint32 elements that it takes.
  static int64_t words(int64_t count) { return 4 * count + kDigits * chunks(count); }

  // By the lowest `digits` digits.
  void sort(const Launch& launch, int digits) {
    const auto blocks = static_cast<unsigned>(chunks(count));
    for (int digit = 0; count > 0 && digit < digits; ++digit) {
      count_digits<<<blocks, kSortThreads, 0, launch.stream>>>(keys, counts_, count, 8 * digit);
      sum_before<<<1, 1024, 0, launch.stream>>>(counts_, kDigits * chunks(count));
      place_keys<<<blocks, kSortThreads, 0, launch.stream>>>(keys, places, counts_, other_keys_,
                                                             other_places_, count, 8 * digit);
      std::swap(keys, other_keys_);
      std::swap(places, other_places_);
    }
  }

  int64_t count;
  uint32_t *keys, *places;

 private:
  static int64_t chunks(int64_t count) { return (count + kSortThreads - 1) / kSortThreads; }
  uint32_t *other_keys_, *other_places_, *counts_;
};

// Digits of the numbers up to `most`.
inline int digits_of(int64_t most) {
  int digits = 1;
  while (digits < 4 && most >> (8 * digits) > 0) ++digits;
  return digits;
}

}  // namespace pl::cuda

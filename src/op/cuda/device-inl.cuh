// What device code shares: 16-byte packs, numbers widened for computing, sums over warps and blocks
// in a fixed order, random words equal to op/philox.h's.
#pragma once

#include "op/cuda/kernel-inl.h"
#include "op/step_params.h"

namespace pl::cuda {

// What a T is computed in.
template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<Bf16> {
  using type = float;
};
template <>
struct WideOf<Half> {
  using type = float;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
inline constexpr bool kNarrow = sizeof(T) == 2;  // fast functions are exact enough

template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};
// Parts of a batch may lie anywhere that their dtype allows.
template <class... T>
bool at_packs(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % sizeof(uint4)) | ...) == 0;
}
template <class T>
__device__ inline Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

template <class T>
__device__ inline Wide<T> widen(T x) {
  return static_cast<Wide<T>>(x);
}

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Functions of numbers, in float32 or float64.
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }
__device__ inline float rsqrt_of(float x) { return rsqrtf(x); }
__device__ inline double rsqrt_of(double x) { return 1 / sqrt(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float abs_of(float x) { return fabsf(x); }
__device__ inline double abs_of(double x) { return fabs(x); }
__device__ inline float log1p_of(float x) { return log1pf(x); }
__device__ inline double log1p_of(double x) { return log1p(x); }
__device__ inline float erfc_of(float x) { return erfcf(x); }
__device__ inline double erfc_of(double x) { return erfc(x); }
__device__ inline float expm1_of(float x) { return expm1f(x); }
__device__ inline double expm1_of(double x) { return expm1(x); }
__device__ inline float sin_of(float x) { return sinf(x); }
__device__ inline double sin_of(double x) { return sin(x); }
__device__ inline float cos_of(float x) { return cosf(x); }
__device__ inline double cos_of(double x) { return cos(x); }
__device__ inline float floor_of(float x) { return floorf(x); }
__device__ inline double floor_of(double x) { return floor(x); }
__device__ inline float ceil_of(float x) { return ceilf(x); }
__device__ inline double ceil_of(double x) { return ceil(x); }
__device__ inline float trunc_of(float x) { return truncf(x); }
__device__ inline double trunc_of(double x) { return trunc(x); }
__device__ inline float round_of(float x) { return rintf(x); }
__device__ inline double round_of(double x) { return rint(x); }
__device__ inline float fmod_of(float a, float b) { return fmodf(a, b); }
__device__ inline double fmod_of(double a, double b) { return fmod(a, b); }
__device__ inline float pow_of(float a, float b) { return powf(a, b); }
__device__ inline double pow_of(double a, double b) { return pow(a, b); }
__device__ inline float infinity(float) { return __int_as_float(0x7f800000); }
__device__ inline double infinity(double) { return __longlong_as_double(0x7ff0000000000000LL); }
__device__ inline float nan_of(float) { return __int_as_float(0x7fc00000); }
__device__ inline double nan_of(double) { return __longlong_as_double(0x7ff8000000000000LL); }

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN wins.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// All lanes get the result, of the same tree in each.
template <class T, class F>
__device__ inline T warp_all(T x, F join) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, x, step);
    // Joined in the order of lanes, so that both of a pair get the same bits.
    x = (threadIdx.x & step) ? join(other, x) : join(x, other);
  }
  return x;
}

// All threads of a one-dimensional block get the result; `shared` has room for 32.
template <class T, class F>
__device__ inline T block_all(T x, T neutral, T* shared, F join) {
  x = warp_all(x, join);
  const int warps = (blockDim.x + 31) / 32;
  if (warps == 1) return x;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = static_cast<int>(threadIdx.x % 32) < warps ? shared[threadIdx.x % 32] : neutral;
  return warp_all(x, join);
}

// Philox 4x32-10, as op/philox.h.
__device__ inline uint4 philox_words(uint4 c, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c;
}
__device__ inline uint2 stream_key(uint64_t seed, uint64_t stream) {
  const uint4 words = philox_words(
      make_uint4(static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32), 0, 0),
      make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)));
  return make_uint2(words.x, words.y);
}
__device__ inline uint4 stream_block(uint2 key, uint64_t step, uint64_t block) {
  return philox_words(make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                 static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)),
                      key);
}
__device__ inline uint32_t word_of(const uint4& words, uint32_t lane) {
  return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
}
__device__ inline double unit_of(uint32_t word) { return (word + 0.5) * 0x1p-32; }  // in (0, 1)

// Where the elements of a call lie in the step's random stream; as cpu::DropoutForm.
struct StreamForm {
  int64_t total = 0, per_row = 0;
  uint64_t stream = 0;
  int64_t image_row = 0, height = 0;
  int bands = 0;
  int starts[64] = {};
};
struct StreamPlace {
  uint2 key;
  uint64_t step;
  int64_t base;
};
__device__ inline StreamPlace stream_place(const StreamForm& f, const StepParams* p) {
  StreamPlace place{stream_key(p->seed, f.stream), static_cast<uint64_t>(p->step), 0};
  if (f.bands > 0) {
    place.base = (p->row_offset * f.height + f.starts[p->band]) * f.image_row;
  } else {
    const int64_t per_row = f.per_row > 0 && p->call_rows > 0 ? f.total / p->call_rows : f.per_row;
    place.base = p->row_offset * per_row;
  }
  return place;
}

}  // namespace pl::cuda

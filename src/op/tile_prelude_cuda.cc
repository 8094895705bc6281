// What every kernel that is made from a text begins with.
#include "op/cuda/tile_source.h"

namespace pl::cuda {

// W: what is computed in. FAST: results end as 16 bits.
const char* const kTilePrelude = R"(
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct boolean { u8 byte; };
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec { T at[N]; };
template <class T> __device__ inline W wide(T x) { return (W)x; }
template <> __device__ inline W wide(bf16 x) { return (W)__uint_as_float((u32)x.bits << 16); }
template <> __device__ inline W wide(f16 x) {
  float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return (W)y;
}
template <> __device__ inline W wide(boolean x) { return x.byte ? W(1) : W(0); }
template <class T> struct To { __device__ static T of(W x) { return (T)x; } };
template <> struct To<bf16> { __device__ static bf16 of(W x) {
  bf16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"((float)x)); return y;
} };
template <> struct To<f16> { __device__ static f16 of(W x) {
  f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"((float)x)); return y;
} };
__device__ inline float infinite(float) { return __int_as_float(0x7f800000); }
__device__ inline double infinite(double) { return __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline W maximum(W a, W b) { return a > b || a != a ? a : b; }
__device__ inline W minimum(W a, W b) { return a < b || a != a ? a : b; }
__device__ inline W sigmoid(W x) {
  const W e = exp(-fabs(x)); return (x >= W(0) ? W(1) : e) / (W(1) + e);
}
__device__ inline W softplus(W x) { return (x < W(0) ? W(0) : x) + log1p(exp(-fabs(x))); }
__device__ inline W floor_divided(W a, W b) {
  if (b == W(0)) return a / b;
  const W rest = fmod(a, b);
  const W quotient = (a - rest) / b - W(rest != W(0) && (rest < W(0)) != (b < W(0)));
  const W whole = floor(quotient);
  return quotient - whole > W(0.5) ? whole + W(1) : whole;
}
__device__ inline W modulo(W a, W b) {
  const W rest = fmod(a, b);
  return rest != W(0) && (rest < W(0)) != (b < W(0)) ? rest + b : rest;
}
__device__ inline W sign(W x) { return x > W(0) ? W(1) : x < W(0) ? W(-1) : x; }
__device__ inline W below(W x, bool approximate) {
  if (!approximate) return W(0.5) * erfc(-x * W(0.70710678118654752));
  const W u = W(0.79788456080286536) * (x + W(0.044715) * x * x * x);
  return FAST ? (W)__fdividef(1.0f, 1.0f + __expf((float)(W(-2) * u)))
              : W(1) / (W(1) + exp(W(-2) * u));
}
__device__ inline W gelu(W x, bool approximate) {
  return x == -infinite(x) ? W(0) : x * below(x, approximate);
}
__device__ inline W gelu_slope(W x, bool approximate) {
  if (fabs(x) == infinite(x)) return x > W(0) ? W(1) : W(0);
  const W s = below(x, approximate);
  if (!approximate) return s + x * W(0.39894228040143268) * exp(W(-0.5) * x * x);
  const W du = W(0.79788456080286536) * (W(1) + W(3 * 0.044715) * x * x);
  const W flat = s * (W(1) - s);
  return flat == W(0) ? s : s + x * flat * W(2) * du;
}
struct Params { i64 step; u64 seed; double rate; i64 update, rows, row_offset, call_rows, band; };
struct Args { const void* in[32]; void* out[8]; void* parts; };
__device__ inline uint4 philox(uint4 c, uint2 k) {
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    const u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    const u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k.x, l1, h0 ^ c.w ^ k.y, l0);
    k.x += 0x9E3779B9u; k.y += 0xBB67AE85u;
  }
  return c;
}
__device__ inline uint2 stream_key(u64 seed, u64 stream) {
  const uint4 w = philox(make_uint4((u32)stream, (u32)(stream >> 32), 0, 0),
                         make_uint2((u32)seed, (u32)(seed >> 32)));
  return make_uint2(w.x, w.y);
}
template <int N> __device__ inline void draw(uint2 key, u64 step, u64 first, u32 (&to)[N]) {
  uint4 w;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const u64 at = first + j;
    if (j == 0 || at % 4 == 0)
      w = philox(make_uint4((u32)(at / 4), (u32)(at / 4 >> 32), (u32)step, (u32)(step >> 32)), key);
    const u32 lane = (u32)(at % 4);
    to[j] = lane == 0 ? w.x : lane == 1 ? w.y : lane == 2 ? w.z : w.w;
  }
}
)";

}  // namespace pl::cuda

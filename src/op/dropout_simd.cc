// dropout and its gradient, float32 and bfloat16, compiled once for each SIMD target. Gives the
// bits of the reference: words are integers, and each element is one product.
#include "op/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/dropout_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

constexpr int64_t kBlocks = 16;          // of four words, made side by side
constexpr int64_t kWords = 4 * kBlocks;  // a group
using Tag = hn::CappedTag<uint32_t, kBlocks>;
using Vec = hn::Vec<Tag>;

#if HWY_TARGET == HWY_SCALAR  // has no 64-bit view of two lanes

void random_words(const DropoutMask& mask, uint64_t first, uint32_t* words) {
  for (int64_t i = 0; i < kBlocks; ++i) {
    const PhiloxWords block = philox_block(mask.key, mask.step, first + static_cast<uint64_t>(i));
    std::copy(block.begin(), block.end(), words + 4 * i);
  }
}

#else

// Both halves of the 64-bit products of each lane with `factor`.
HWY_INLINE void multiply(Vec x, Vec factor, Vec* high, Vec* low) {
  const Tag d;
  const hn::Repartition<uint64_t, Tag> d64;
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))), factor);
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// Words of blocks [first, first + kBlocks), in order. `first` is a multiple of kBlocks.
HWY_INLINE void random_words(const DropoutMask& mask, uint64_t first, uint32_t* words) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int64_t i = 0; i < kBlocks; i += lanes) {
    auto c0 = hn::Iota(d, static_cast<uint32_t>(first) + static_cast<uint32_t>(i));
    auto c1 = hn::Set(d, static_cast<uint32_t>(first >> 32));
    auto c2 = hn::Set(d, static_cast<uint32_t>(mask.step));
    auto c3 = hn::Set(d, static_cast<uint32_t>(mask.step >> 32));
    uint32_t k0 = mask.key[0], k1 = mask.key[1];
    for (int round = 0; round < kPhiloxRounds; ++round) {
      Vec high0, low0, high1, low1;
      multiply(c0, m0, &high0, &low0);
      multiply(c2, m1, &high1, &low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
      c1 = low1;
      c3 = low0;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * i);
  }
}

#endif

template <class T>
HWY_INLINE void dropout_loop(const T* x, T* y, int64_t begin, int64_t end, const DropoutMask& mask,
                             float factor) {
  const Tag d;
  const Floats df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint32_t words[kWords];
  while (begin < end) {
    const int64_t index = mask.base + begin, skip = index % kWords;
    const int64_t count = std::min(kWords - skip, end - begin);
    random_words(mask, static_cast<uint64_t>((index - skip) / 4), words);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const auto dropped = hn::Lt(hn::LoadU(d, words + skip + i), hn::Set(d, mask.threshold));
      const auto scaled = hn::Mul(load(x + begin + i), hn::Set(df, factor));
      store(hn::IfThenZeroElse(hn::RebindMask(df, dropped), scaled), y + begin + i);
    }
    for (; i < count; ++i)
      y[begin + i] =
          T(words[skip + i] >= mask.threshold ? static_cast<float>(x[begin + i]) * factor : 0.0f);
    begin += count;
  }
}

void dropout_f32(const float* x, float* y, int64_t begin, int64_t end, const DropoutMask& mask,
                 float factor) {
  dropout_loop(x, y, begin, end, mask, factor);
}
void dropout_bf16(const Bfloat16* x, Bfloat16* y, int64_t begin, int64_t end,
                  const DropoutMask& mask, float factor) {
  dropout_loop(x, y, begin, end, mask, factor);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(dropout_f32);
HWY_EXPORT(dropout_bf16);

namespace {
void dropout_range(const float* x, float* y, int64_t begin, int64_t end, const DropoutMask& mask,
                   float factor) {
  HWY_DYNAMIC_DISPATCH(dropout_f32)(x, y, begin, end, mask, factor);
}
void dropout_range(const Bfloat16* x, Bfloat16* y, int64_t begin, int64_t end,
                   const DropoutMask& mask, float factor) {
  HWY_DYNAMIC_DISPATCH(dropout_bf16)(x, y, begin, end, mask, factor);
}
}  // namespace

void dropout_tile(const float* x, float* y, Dim count, const DropoutMask& mask, double factor) {
  dropout_range(x, y, 0, count, mask, static_cast<float>(factor));
}

std::unique_ptr<Kernel> dropout_simd(const PrepareCall& call) {
  const DropoutForm f = dropout_form(call);
  const int threads = call.backend.threads();
  return dispatch_simd(call.in[0].dtype, [&]<class T>() {
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      const DropoutMask mask = dropout_mask(f, in[1]);
      const float factor = static_cast<float>(f.factor());
      parallel_ranges(
          threads, f.total, f.total * 2,
          [&](int64_t begin, int64_t end) { dropout_range(x, y, begin, end, mask, factor); }, 64);
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE

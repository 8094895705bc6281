// Terms of products: float32, or pairs of bfloat16 with float32 sums. Included by `*_simd.cc` files
// inside their namespace pl::cpu::HWY_NAMESPACE, after simd_math-inl.h, once for each target.
// Highway 1.0.3 knows none of the instructions of AVX512-BF16, hence the assembler; they take
// subnormal numbers for zero. On other targets kernels for pairs are compiled but never chosen.

HWY_INLINE FloatVector load_terms(const float* x) { return hn::LoadU(Floats(), x); }
HWY_INLINE FloatVector same_terms(const float* x) { return hn::Set(Floats(), *x); }
HWY_INLINE FloatVector multiply_add(FloatVector a, FloatVector b, FloatVector sum) {
  return hn::MulAdd(a, b, sum);
}

using PairWords = hn::RebindToUnsigned<Floats>;
using PairVector = hn::Vec<PairWords>;
HWY_INLINE PairVector load_terms(const BfloatPair* x) {
  return hn::LoadU(PairWords(), reinterpret_cast<const uint32_t*>(x));
}
HWY_INLINE PairVector same_terms(const BfloatPair* x) {
  uint32_t word;
  std::memcpy(&word, x, sizeof word);
  return hn::Set(PairWords(), word);
}

// store_numbers: one vector, rounded. store_terms: a vector of terms, of one vector or of two.
HWY_INLINE void store_numbers(FloatVector v, float* to) { store(v, to); }
HWY_INLINE void store_terms(FloatVector v, float* to) { store(v, to); }

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr bool kHasPairs = true;
HWY_INLINE FloatVector multiply_add(PairVector a, PairVector b, FloatVector sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
HWY_INLINE void store_numbers(FloatVector v, Bfloat16* to) {
  __m256i bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(v.raw));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
}
HWY_INLINE void store_terms(FloatVector first, FloatVector second, BfloatPair* to) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i both;  // all of the first, then all of the second
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(first.raw), "v"(second.raw));
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both));
}
#else
constexpr bool kHasPairs = false;
HWY_INLINE FloatVector multiply_add(PairVector a, PairVector b, FloatVector sum) {
  const Floats d;
  const auto upper = hn::Set(PairWords(), 0xFFFF0000u);
  auto first = [&](PairVector v) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(v)); };
  auto second = [&](PairVector v) HWY_ATTR { return hn::BitCast(d, hn::And(v, upper)); };
  return hn::MulAdd(second(a), second(b), hn::MulAdd(first(a), first(b), sum));
}
HWY_INLINE void store_numbers(FloatVector v, Bfloat16* to) { store(v, to); }
HWY_INLINE void store_terms(FloatVector first, FloatVector second, BfloatPair* to) {
  Bfloat16 a[kLanes], b[kLanes];
  store(first, a);
  store(second, b);
  for (Dim i = 0; i < kWidth; ++i) to[i] = {a[i], b[i]};
}
#endif

// A vector of numbers at element `at` of a matrix of terms.
HWY_INLINE void store_within(FloatVector v, float* terms, Dim at) { store(v, terms + at); }
HWY_INLINE void store_within(FloatVector v, BfloatPair* terms, Dim at) {
  store_numbers(v, reinterpret_cast<Bfloat16*>(terms) + at);
}

// Terms of products: float32, or pairs of bfloat16 (bfloat_pair.h) with float32 sums. Included by
// simd_product-inl.h inside the namespace pl::cpu::HWY_NAMESPACE, once for each target.
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

// Templates, so that a target compiles only what it has.
constexpr bool kHasPairs = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;

template <class P, class V>
HWY_INLINE V multiply_add(P a, P b, V sum) {
  if constexpr (kHasPairs) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  } else {
    const Floats d;
    const auto upper = hn::Set(PairWords(), 0xFFFF0000u);
    auto first = [&](P v) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(v)); };
    auto second = [&](P v) HWY_ATTR { return hn::BitCast(d, hn::And(v, upper)); };
    return hn::MulAdd(second(a), second(b), hn::MulAdd(first(a), first(b), sum));
  }
}

template <class V>
HWY_INLINE void store_numbers(V v, Bfloat16* to) {
  if constexpr (kHasPairs) {
    const hn::Rebind<uint16_t, Floats> halves;
    auto bits = hn::Zero(halves);
    asm("vcvtneps2bf16 %1, %0" : "=v"(bits.raw) : "v"(v.raw));
    hn::StoreU(bits, halves, reinterpret_cast<uint16_t*>(to));
  } else {
    store(v, to);
  }
}

template <class V>
HWY_INLINE void store_terms(V first, V second, BfloatPair* to) {
  if constexpr (kHasPairs) {
    // Element i of the first, then of the second, out of all of the first and all of the second.
    alignas(64) static constexpr uint32_t kOrder[kLanes] = {
        0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
        0x180008, 0x190009, 0x1A000A, 0x1B000B, 0x1C000C, 0x1D000D, 0x1E000E, 0x1F000F};
    const auto order = hn::Load(PairWords(), kOrder);
    auto pairs = order;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pairs.raw) : "v"(first.raw), "v"(second.raw));
    asm("vpermw %1, %2, %0" : "=v"(pairs.raw) : "v"(pairs.raw), "v"(order.raw));
    hn::StoreU(pairs, PairWords(), reinterpret_cast<uint32_t*>(to));
  } else {
    Bfloat16 a[kLanes], b[kLanes];
    store(first, a);
    store(second, b);
    for (Dim i = 0; i < kWidth; ++i) to[i] = {a[i], b[i]};
  }
}

// A vector of numbers at element `at` of a matrix of terms.
HWY_INLINE void store_within(FloatVector v, float* terms, Dim at) { store(v, terms + at); }
HWY_INLINE void store_within(FloatVector v, BfloatPair* terms, Dim at) {
  store_numbers(v, reinterpret_cast<Bfloat16*>(terms) + at);
}

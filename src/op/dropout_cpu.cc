// CPU kernel of dropout and of its gradient: random words block by block, sixteen blocks side by side
// so that the rounds vectorise.
#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "op/dropout.h"
#include "op/kernel.h"
#include "op/philox.h"
#include "op/step_params.h"

namespace pl::cpu {
namespace {

constexpr int kSide = 16;
constexpr Dim kWords = 4 * kSide;

// Words of blocks [first, first + kSide): out[4 * i + w] = philox_block(stream, step, first + i)[w].
void random_words(PhiloxKey key, uint64_t step, uint64_t first, uint32_t* out) {
  uint32_t c0[kSide], c1[kSide], c2[kSide], c3[kSide];
  for (int i = 0; i < kSide; ++i) {
    c0[i] = static_cast<uint32_t>(first + static_cast<uint64_t>(i));
    c1[i] = static_cast<uint32_t>((first + static_cast<uint64_t>(i)) >> 32);
    c2[i] = static_cast<uint32_t>(step);
    c3[i] = static_cast<uint32_t>(step >> 32);
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int i = 0; i < kSide; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i], p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ key[0];
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ key[1];
      c1[i] = static_cast<uint32_t>(p1);
      c3[i] = static_cast<uint32_t>(p0);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  for (int i = 0; i < kSide; ++i) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

struct Form {
  Dim total, per_row;  // per_row 0: no samples to count from
  double rate;
  uint64_t stream;
};

Form form_of(const PrepareCall& call) {
  const Shape& x = call.in[0].shape;
  const Dim total = x.elements();
  const bool rows = call.attrs.integer("rows", 1) && x.rank() > 0 && total > 0;
  return {total, rows ? total / x[0] : 0, call.attrs.real("rate"),
          static_cast<uint64_t>(call.attrs.integer("stream"))};
}

// Element i of the call is element base + i of the full batch. Kept when its word reaches `threshold`.
template <class T>
void mask_range(const T* x, T* y, Dim begin, Dim end, Dim base, PhiloxKey key, uint64_t step,
                uint64_t threshold, T factor) {
  uint32_t words[kWords];
  while (begin < end) {
    const Dim index = base + begin, skip = index % kWords;
    const Dim count = std::min(kWords - skip, end - begin);
    random_words(key, step, static_cast<uint64_t>((index - skip) / 4), words);
    const uint32_t* word = words + skip;
#pragma omp simd
    for (Dim i = 0; i < count; ++i)
      y[begin + i] = word[i] >= threshold ? x[begin + i] * factor : T(0);
    begin += count;
  }
}

}  // namespace

std::unique_ptr<Kernel> dropout_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Form f = form_of(call);
    const int threads = call.backend.threads();
    return make_kernel([f, threads](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      StepParams params;
      std::memcpy(&params, in[1], sizeof params);
      const PhiloxKey key = philox_stream(params.seed, f.stream);
      const Dim base = params.row_offset * f.per_row;
      const auto threshold = static_cast<uint64_t>(f.rate * 4294967296.0);
      const T factor = static_cast<T>(1 / (1 - f.rate));
      const auto step = static_cast<uint64_t>(params.step);
      parallel_ranges(
          threads, f.total, f.total * 4,
          [&](Dim begin, Dim end) {
            mask_range(x, y, begin, end, base, key, step, threshold, factor);
          },
          kWords);
    });
  });
}

}  // namespace pl::cpu

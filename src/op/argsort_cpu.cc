// CPU kernel of argsort. Elements have keys, unsigned integers in the same order. A row's places
// are sorted by the digits of their keys, the lowest first, so that equal ones stay in order; where
// few of many are asked for, those are collected that come before the last one known so far.
#include <algorithm>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/parallel.h"
#include "op/argsort.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr Dim kDigits = 256;
constexpr Dim kShort = 32;  // rows up to this are sorted by insertion
constexpr Dim kFew = 8;     // one of so many elements is asked for, or fewer
constexpr Dim kBlock = 64;  // elements that are looked at together

template <size_t bytes>
struct Unsigned {
  using type = std::conditional_t<bytes == 8, uint64_t, uint32_t>;
};
template <>
struct Unsigned<1> {
  using type = uint8_t;
};
template <class T>
using Key = typename Unsigned<sizeof(T)>::type;

template <class T>
struct Row {
  const T* x;
  Dim n;
  Key<T> turn;  // all bits of keys where the order descends

  // Ascending with x: both zeros are equal, NaN are the largest.
  Key<T> key(Dim i) const {
    constexpr Key<T> kOnes = static_cast<Key<T>>(~Key<T>{0}), kSign = kOnes ^ (kOnes >> 1);
    Key<T> bits;
    std::memcpy(&bits, x + i, sizeof bits);
    if constexpr (std::floating_point<T>) {
      const Key<T> negative = static_cast<Key<T>>(-(bits >> (8 * sizeof(T) - 1)));
      const Key<T> key = x[i] == T(0) ? kSign : bits ^ (negative | kSign);
      bits = x[i] == x[i] ? key : kOnes;
    } else if constexpr (std::signed_integral<T>) {
      bits ^= kSign;
    }
    return bits ^ turn;
  }
};

template <class T>
void sort_short(const Row<T>& row, int32_t* places) {
  for (Dim i = 0; i < row.n; ++i) {
    const Key<T> key = row.key(i);
    Dim at = i;
    for (; at > 0 && row.key(places[at - 1]) > key; --at) places[at] = places[at - 1];
    places[at] = static_cast<int32_t>(i);
  }
}

// places (n), other (n).
template <class T>
void sort_row(const Row<T>& row, int32_t* places, int32_t* other) {
  if (row.n <= kShort) return sort_short(row, places);
  constexpr int kMost = static_cast<int>(sizeof(T));
  auto digit = [&](Dim i, int d) { return static_cast<uint8_t>(row.key(i) >> (8 * d)); };
  uint32_t counts[kMost][kDigits] = {};
  for (Dim i = 0; i < row.n; ++i) {
    const Key<T> key = row.key(i);
    for (int d = 0; d < kMost; ++d) ++counts[d][static_cast<uint8_t>(key >> (8 * d))];
  }
  // A digit that all share moves nothing.
  int moving[kMost], passes = 0;
  for (int d = 0; d < kMost; ++d)
    if (counts[d][digit(0, d)] != row.n) moving[passes++] = d;
  if (passes % 2 == 0) std::swap(places, other);  // the last pass writes where it should
  for (int pass = 0; pass < passes; ++pass, std::swap(places, other)) {
    const int d = moving[pass];
    uint32_t* next = counts[d];
    for (uint32_t v = 0, before = 0; v < kDigits; ++v) before += std::exchange(next[v], before);
    for (Dim i = 0; i < row.n; ++i) {
      const int32_t place = pass == 0 ? static_cast<int32_t>(i) : other[i];
      places[next[digit(place, d)]++] = place;
    }
  }
  for (Dim i = 0; passes == 0 && i < row.n; ++i) other[i] = static_cast<int32_t>(i);
}

template <class T>
struct Candidate {
  Key<T> key;
  int32_t place;
  bool operator<(const Candidate& other) const {
    return key != other.key ? key < other.key : place < other.place;
  }
};

// The first `count`; `kept` has room for twice as many.
template <class T>
void select_row(const Row<T>& row, Dim count, int32_t* places, Candidate<T>* kept) {
  Dim held = 0;
  bool full = false;  // of the elements so far `count` are known, the last of which has this key:
  Key<T> last = 0;
  auto drop = [&] {
    std::nth_element(kept, kept + count - 1, kept + held);
    held = count;
    last = kept[count - 1].key;
    full = true;
  };
  for (Dim i = 0; i < row.n; i += kBlock) {
    const Dim end = std::min(row.n, i + kBlock);
    unsigned before = 0;
    for (Dim k = i; k < end; ++k) before |= row.key(k) < last ? 1u : 0u;
    if (full && before == 0) continue;
    for (Dim k = i; k < end; ++k) {
      const Key<T> key = row.key(k);
      if (full && key >= last) continue;
      kept[held++] = {key, static_cast<int32_t>(k)};
      if (held == 2 * count) drop();
    }
  }
  if (held > count) drop();
  std::sort(kept, kept + count);
  for (Dim k = 0; k < count; ++k) places[k] = kept[k].place;
}

// Each share of the rows has bytes of its own.
template <class T>
std::unique_ptr<Kernel> argsort(const PrepareCall& call) {
  const Dim n = call.in[0].shape.back(), count = call.out[0].shape.back();
  const Dim rows = n == 0 || count == 0 ? 0 : call.in[0].elements() / n;
  const bool few = count <= n / kFew;
  const bool descending = call.attrs.integer("descending", 0) != 0;
  const int threads = call.backend.threads();
  const Dim shares = std::min<Dim>(threads, rows);
  constexpr auto kPlace = static_cast<Bytes>(sizeof(int32_t));
  const Bytes own = align_up(
      few ? 2 * count * static_cast<Bytes>(sizeof(Candidate<T>)) : (count < n ? 2 * n : n) * kPlace,
      kFullAlignment);
  auto take_row = [=](const T* x, int32_t* y, char* space) {
    const Row<T> row{x, n, static_cast<Key<T>>(descending ? ~Key<T>{0} : Key<T>{0})};
    if (few) return select_row(row, count, y, reinterpret_cast<Candidate<T>*>(space));
    auto* places = reinterpret_cast<int32_t*>(space);
    sort_row(row, count < n ? places + n : y, places);
    if (count < n) std::copy_n(places + n, count, y);
  };
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const T* x = static_cast<const T*>(in[0]);   // (rows, n)
        int32_t* y = static_cast<int32_t*>(out[0]);  // (rows, count)
        parallel_ranges(threads, shares, rows * n * 8, [&](Dim begin, Dim end) {
          for (Dim share = begin; share < end; ++share)
            for (Dim r = rows * share / shares; r < rows * (share + 1) / shares; ++r)
              take_row(x + r * n, y + r * count, static_cast<char*>(workspace) + share * own);
        });
      },
      own * shares);
}

}  // namespace

std::unique_ptr<Kernel> argsort_reference(const PrepareCall& call) {
  if (size_of(call.in[0].dtype) == 1) return argsort<uint8_t>(call);
  return dispatch_number(call.in[0].dtype, [&]<class T>() { return argsort<T>(call); });
}

}  // namespace pl::cpu

// Kernels that go over the elements of tensors, of one call or of several in one launch: updates of
// weights, casts. Which tensors is the kernel's parameter.
#pragma once

#include "backend/several_kernel.h"
#include "op/cuda/device-inl.cuh"

namespace pl::cuda {

// A Rule has
//   Places, made of a call's operands by make_places(in, out): pointers;
//   kSize, elements of a pack: run(places, i) does the i-th one, rest(places, i) element i alone;
//   packed(places): whether these lie where packs may;
//   params(in): what all calls of a launch must have in common, kept as `step` for begin().
// Rules of calls that are run together are equal.
inline constexpr int kMostAtOnce = 192;
inline constexpr int kEachThreads = 256, kEachBlocks = 6;  // that fit on a processor at once
template <class Rule, int kMost>
struct Several {
  Rule rule;
  int count = 0;
  uint32_t ends[kMost];  // chunks, a pack for each thread, up to the end of each call
  int64_t totals[kMost];
  typename Rule::Places places[kMost];
};

template <class Rule, int kMost>
__global__ void __launch_bounds__(kEachThreads, kEachBlocks)
    each_of_several(const __grid_constant__ Several<Rule, kMost> all) {
  Rule rule = all.rule;
  rule.begin();
  // The first call whose end is beyond this block's first chunk; later chunks lie behind it.
  int at = 0;
  for (int high = all.count - 1; at < high;) {
    const int middle = (at + high) / 2;
    if (all.ends[middle] > blockIdx.x)
      high = middle;
    else
      at = middle + 1;
  }
  for (uint32_t chunk = blockIdx.x; chunk < all.ends[all.count - 1]; chunk += gridDim.x) {
    while (chunk >= all.ends[at]) ++at;
    const typename Rule::Places& places = all.places[at];
    const int64_t total = all.totals[at], packs = total / Rule::kSize;
    const int64_t first = chunk - (at > 0 ? all.ends[at - 1] : 0);
    const int64_t i = first * kEachThreads + threadIdx.x;
    if (i < packs) rule.run(places, i);
    const int64_t left = packs * Rule::kSize + threadIdx.x;
    if (chunk + 1 == all.ends[at] && left < total) rule.rest(places, left);
  }
}

// Of a call whose tensors do not lie at packs.
template <class Rule>
__global__ void each_element(Rule rule, typename Rule::Places places, int64_t total) {
  rule.begin();
  for (int64_t i = thread_index(); i < total; i += thread_count()) rule.rest(places, i);
}

template <class Rule>
class EachKernel final : public SeveralKernel {
 public:
  EachKernel(CudaBackend& backend, const Rule& rule, int64_t total)
      : backend_(backend), rule_(rule), total_(total) {
    footprint = static_cast<Bytes>(sizeof *this);
    backend.load(reinterpret_cast<const void*>(each_element<Rule>));
  }
  void run(void* const* in, void* const* out, void*) override {
    const KernelCall call{this, in, out};
    launch<1>(std::span(&call, 1));
    check_launch(key.c_str());
  }
  bool joins(const Kernel& other) const override {
    const auto* same = dynamic_cast<const EachKernel*>(&other);
    return same && same->rule_ == rule_;
  }
  void run_several(std::span<const KernelCall> calls) override {
    while (!calls.empty()) {
      size_t count = 1;
      while (count < calls.size() && count < kMostAtOnce &&
             rule_.params(calls[count].in) == rule_.params(calls[0].in))
        ++count;
      const auto now = calls.first(count);
      if (count == 1)
        launch<1>(now);
      else if (count <= kFew)
        launch<kFew>(now);
      else
        launch<kMostAtOnce>(now);
      calls = calls.subspan(count);
    }
    check_launch(key.c_str());
  }

 private:
  static constexpr int kFew = 8;

  template <int kMost>
  void launch(std::span<const KernelCall> calls) {
    Several<Rule, kMost> all;
    all.rule = rule_;
    all.rule.step = rule_.params(calls[0].in);
    const Launch launch{backend_.stream(), backend_.multiprocessors()};
    int64_t chunks = 0;
    for (const KernelCall& call : calls) {
      const int64_t total = static_cast<const EachKernel*>(call.kernel)->total_;
      if (total == 0) continue;
      const typename Rule::Places places = Rule::make_places(call.in, call.out);
      if (!Rule::packed(places)) {
        each_element<Rule><<<launch.blocks(total, kEachThreads), kEachThreads, 0, launch.stream>>>(
            all.rule, places, total);
        continue;
      }
      // A call has a chunk even if it is less than a pack.
      chunks += std::max<int64_t>(1, (total / Rule::kSize + kEachThreads - 1) / kEachThreads);
      all.ends[all.count] = static_cast<uint32_t>(chunks);
      all.totals[all.count] = total;
      all.places[all.count++] = places;
    }
    if (all.count == 0) return;
    each_of_several<Rule, kMost>
        <<<launch.blocks(chunks, 1, kEachBlocks), kEachThreads, 0, launch.stream>>>(all);
  }

  CudaBackend& backend_;
  Rule rule_;
  int64_t total_;
};

template <class Rule>
std::unique_ptr<Kernel> make_each(const PrepareCall& call, const Rule& rule) {
  return std::make_unique<EachKernel<Rule>>(backend_of(call), rule, call.out[0].elements());
}

// The rule of an Update: a struct with T, kIn and kOut, step numbers `step` among its operands at
// kParams (-1: none), begin(), and one(x, y), which makes kOut numbers of kIn. Results may lie on
// operands.
template <class Update>
struct EachUpdate {
  using T = typename Update::T;
  static constexpr int kSize = Pack<T>::kSize;
  struct Places {
    const T* in[Update::kIn];
    T* out[Update::kOut];
  };
  Update update;
  const StepParams* step = nullptr;
  bool operator==(const EachUpdate& other) const { return update == other.update; }

  static Places make_places(void* const* in, void* const* out) {
    Places places;
    for (int i = 0; i < Update::kIn; ++i) places.in[i] = input<T>(in, i);
    for (int o = 0; o < Update::kOut; ++o) places.out[o] = output<T>(out, o);
    return places;
  }
  static bool packed(const Places& places) {
    bool all = true;
    for (const T* in : places.in) all = all && at_packs(in);
    for (const T* out : places.out) all = all && at_packs(out);
    return all;
  }
  static const StepParams* params(void* const* in) {
    return input<StepParams>(in, Update::kParams);
  }
  __device__ void begin() { update.begin(step); }
  __device__ void run(const Places& places, int64_t i) const {
    Pack<T> x[Update::kIn], y[Update::kOut];
#pragma unroll
    for (int k = 0; k < Update::kIn; ++k) x[k] = load_pack(places.in[k] + i * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      T from[Update::kIn], to[Update::kOut];
#pragma unroll
      for (int k = 0; k < Update::kIn; ++k) from[k] = x[k].at[j];
      update.one(from, to);
#pragma unroll
      for (int k = 0; k < Update::kOut; ++k) y[k].at[j] = to[k];
    }
#pragma unroll
    for (int k = 0; k < Update::kOut; ++k) store_pack(places.out[k] + i * kSize, y[k]);
  }
  __device__ void rest(const Places& places, int64_t i) const {
    T from[Update::kIn], to[Update::kOut];
#pragma unroll
    for (int k = 0; k < Update::kIn; ++k) from[k] = places.in[k][i];
    update.one(from, to);
#pragma unroll
    for (int k = 0; k < Update::kOut; ++k) places.out[k][i] = to[k];
  }
};

}  // namespace pl::cuda

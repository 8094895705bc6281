#include "op/conv2d_winograd.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/onednn.h"
#include "backend/cpu/parallel.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr Dim kLeastWinogradChannels = 32;
constexpr Dim kMostWeights = 256 * 256;  // channels times filters: 9 MiB of transformed weights
// What a product costs here, in products of the plain kind: the transforms, and smaller matrices.
constexpr double kDearness = 1.3;

// Pairs of an output position and a tap that is not padding.
Dim real_taps(const WindowAxis& a) {
  Dim taps = 0;
  for (Dim k = 0; k < a.kernel; ++k)
    taps += std::min(a.out, a.in + a.before - k) - std::max<Dim>(0, a.before - k);
  return taps;
}

bool plain_3x3(const WindowAxis& a) {
  return a.kernel == 3 && a.stride == 1 && a.dilation == 1 && a.before <= 2;
}

}  // namespace

bool winograd_suits(const Conv2dForm& f, const WinogradForm& tiles) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  if (f.groups != 1 || !plain_3x3(h) || !plain_3x3(w)) return false;
  if (f.channels % 16 != 0 || f.filters % 16 != 0) return false;
  if (std::min(f.channels, f.filters) < kLeastWinogradChannels ||
      f.channels * f.filters > kMostWeights)
    return false;
  const auto products = static_cast<double>(kPlanes * tiles.rows() * tiles.columns());
  return kDearness * products < static_cast<double>(real_taps(h) * real_taps(w));
}

WinogradForm winograd_forward(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return {f.batch, h.in, w.in, h.out, w.out, h.before, w.before, f.channels, f.filters};
}

WinogradForm winograd_backward(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return {f.batch, h.out, w.out, h.in, w.in, 2 - h.before, 2 - w.before, f.filters, f.channels};
}

namespace {

constexpr Dim kBlock =
    48;  // tiles that a thread works on at a time, whose planes stay in its cache
constexpr Dim kMultiple = 6;
// Tiles that the weight gradient adds at a time: an even number.
Dim chunk_of(const WinogradForm& f) { return f.depth + f.width > 256 ? 96 : 192; }

// A planes' place in the workspace. From one plane to the next is a line more than its size, so
// that an element's planes do not fall into one set of the cache.
template <class E>
struct Place {
  Bytes at = 0;
  Dim stride = 0;
  WinogradPlanes<E> in(void* workspace, Bytes beyond = 0) const {
    return {reinterpret_cast<E*>(static_cast<char*>(workspace) + at + beyond), stride};
  }
};
template <class E>
Place<E> place_planes(Dim terms, Bytes& end) {
  const Place<E> place{end, align_up(terms, 16) + 16};
  end += kPlanes * place.stride * static_cast<Bytes>(sizeof(E));
  return place;
}

// What the memory bill counts as a part of a library. The code for bfloat16 is part of the program;
// that for float32 is not, since the bill was measured with it.
template <class T>
const char* library_of() {
  return std::is_same_v<T, float> ? "winograd" : "";
}

// Forward, or from dy to dx. Workspace: planes of the weights, then for each thread those of a
// block of tiles, before and after the product. Tiles are what threads share out.
template <class T>
class WinogradConv final : public Kernel {
 public:
  WinogradConv(const WinogradForm& f, const Conv2dForm& conv, bool turned, int threads)
      : loops_(winograd_loops(T())),
        f_(f),
        bias_(conv.bias && !turned),
        relu_(conv.relu && !turned),
        turned_(turned),
        threads_(threads) {
    Bytes end = 0;
    weights_ = place_planes<Term<T>>(f.depth * f.width / kTermSize<T>, end);
    const Bytes shared = end;
    before_ = place_planes<Term<T>>(kBlock * f.depth / kTermSize<T>, end);
    after_ = place_planes<float>(kBlock * f.width, end);
    own_ = end - shared;
    workspace_bytes = shared + threads * own_;
    key = loops_.key;
    library = library_of<T>();
    footprint = sizeof *this;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const T* w = static_cast<const T*>(in[turned_ ? 0 : 1]);
    WinogradBlock<T> all{.x = static_cast<const T*>(in[turned_ ? 1 : 0]),
                         .weights = weights_.in(workspace),
                         .before = {},
                         .after = {},
                         .bias = bias_ ? static_cast<const float*>(in[2]) : nullptr,
                         .relu = relu_,
                         .y = static_cast<T*>(out[0])};
    const Dim work = kPlanes * f_.depth * f_.width;
    parallel_ranges(
        threads_, f_.depth, work,
        [&](Dim begin, Dim end) { loops_.weights(f_, turned_, w, begin, end, all.weights); }, 16);
    parallel_ranges(
        threads_, f_.tiles(), f_.tiles() * work,
        [&](Dim begin, Dim end) {
          WinogradBlock<T> block = all;
          block.before = before_.in(workspace, omp_get_thread_num() * own_);
          block.after = after_.in(workspace, omp_get_thread_num() * own_);
          for (Dim first = begin; first < end; first += kBlock)
            loops_.block(f_, block, first, std::min(kBlock, end - first));
        },
        kMultiple);
  }

 private:
  WinogradLoops<T> loops_;
  WinogradForm f_;
  bool bias_, relu_, turned_;
  int threads_;
  Place<Term<T>> weights_, before_;
  Place<float> after_;
  Bytes own_ = 0;  // of a thread
};

// Workspace: planes of the sums, then those of a chunk of tiles of x and of dy. Chunks have a fixed
// size and are added one after the other. Threads share out tiles while planes are made, and planes
// while they are multiplied.
template <class T>
class WinogradWeightGradient final : public Kernel {
 public:
  WinogradWeightGradient(const Conv2dForm& conv, bool wide, int threads)
      : loops_(winograd_loops(T())),
        f_(winograd_forward(conv)),
        bias_(conv.bias),
        wide_(wide),
        threads_(threads) {
    chunk_ = chunk_of(f_);
    sums_ = place_planes<float>(f_.depth * f_.width, workspace_bytes);
    x_ = place_planes<Term<T>>(chunk_ * f_.depth / kTermSize<T>, workspace_bytes);
    dy_ = place_planes<Term<T>>(chunk_ * f_.width / kTermSize<T>, workspace_bytes);
    key = loops_.key;
    library = library_of<T>();
    footprint = sizeof *this;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const WinogradChunk<T> all{.x = static_cast<const T*>(in[0]),
                               .dy = static_cast<const T*>(in[1]),
                               .x_planes = x_.in(workspace),
                               .dy_planes = dy_.in(workspace),
                               .sums = sums_.in(workspace)};
    for (Dim first = 0; first < f_.tiles(); first += chunk_)
      add_chunk(all, first, std::min(chunk_, f_.tiles() - first));
    parallel_ranges(threads_, f_.depth, kPlanes * f_.depth * f_.width, [&](Dim begin, Dim end) {
      if (wide_)
        loops_.kernel(f_, all.sums, begin, end, static_cast<float*>(out[0]));
      else
        loops_.own_kernel(f_, all.sums, begin, end, static_cast<T*>(out[0]));
    });
    if (!bias_) return;
    parallel_ranges(
        threads_, f_.width, f_.batch * f_.h_out * f_.w_out * f_.width,
        [&](Dim begin, Dim end) {
          loops_.bias(f_, all.dy, begin, end, static_cast<float*>(out[1]));
        },
        16);
  }

 private:
  void add_chunk(const WinogradChunk<T>& all, Dim first, Dim count) const {
    parallel_ranges(
        threads_, count, count * kPlanes * f_.depth,
        [&](Dim begin, Dim end) { loops_.chunk(f_, all, first, begin, end); }, 2);
    parallel_ranges(threads_, kPlanes, kPlanes * count * f_.depth * f_.width,
                    [&](Dim begin, Dim end) {
                      for (Dim p = begin; p < end; ++p) loops_.sum(f_, all, p, count, first > 0);
                    });
  }

  WinogradLoops<T> loops_;
  WinogradForm f_;
  bool bias_, wide_;
  int threads_;
  Dim chunk_;  // tiles
  Place<float> sums_;
  Place<Term<T>> x_, dy_;
};

// Calls `body.template operator()<T>()` where a kernel for images of T is worth it: of bfloat16
// where the processor multiplies pairs of them.
template <class F>
std::unique_ptr<Kernel> dispatch_terms(Dtype dtype, F body) {
  return dispatch_simd(dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (!onednn_multiplies(dtype) || !winograd_loops(T()).native) return nullptr;
    return body.template operator()<T>();
  });
}

std::unique_ptr<Kernel> prepare_conv(const PrepareCall& call, const Conv2dForm& f,
                                     const WinogradForm& tiles, bool turned) {
  if (f.batch == 0 || !winograd_suits(f, tiles)) return nullptr;
  return dispatch_terms(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<WinogradConv<T>>(tiles, f, turned, call.backend.threads());
  });
}

}  // namespace

std::unique_ptr<Kernel> conv2d_winograd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  return prepare_conv(call, f, winograd_forward(f), false);
}

std::unique_ptr<Kernel> conv2d_input_gradient_winograd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  return prepare_conv(call, f, winograd_backward(f), true);
}

std::unique_ptr<Kernel> conv2d_weight_gradient_winograd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (f.batch == 0 || !winograd_suits(f, winograd_forward(f))) return nullptr;
  const bool wide = call.out[0].dtype == Dtype::float32;
  return dispatch_terms(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<WinogradWeightGradient<T>>(f, wide, call.backend.threads());
  });
}

}  // namespace pl::cpu

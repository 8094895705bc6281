#include "op/conv2d_taps.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/onednn.h"
#include "backend/cpu/parallel.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr Dim kMostPixels = 16;          // of the smaller map
constexpr Dim kLeastTapsChannels = 128;  // on either side: panels for two threads

// Every pair of an output and a tap that is not padding, by pixels of the maps.
std::vector<TapRun> pairs_of(const Window& window) {
  const WindowAxis &h = window.h, &w = window.w;
  std::vector<TapRun> pairs;
  for (Dim kh = 0; kh < h.kernel; ++kh)
    for (Dim kw = 0; kw < w.kernel; ++kw)
      for (Dim oh = 0; oh < h.out; ++oh)
        for (Dim ow = 0; ow < w.out; ++ow) {
          const Dim ih = oh * h.stride - h.before + kh * h.dilation;
          const Dim iw = ow * w.stride - w.before + kw * w.dilation;
          if (ih < 0 || ih >= h.in || iw < 0 || iw >= w.in) continue;
          pairs.push_back({kh * w.kernel + kw, ih * w.in + iw, oh * w.out + ow, 1});
        }
  return pairs;
}

// Numbers the pixels that the pairs have at `end`, and renames them so there.
TapPixels pack_pixels(Dim total, std::vector<TapRun>& pairs, Dim TapRun::*end) {
  std::vector<Dim> place(static_cast<size_t>(total), -1);
  for (const TapRun& pair : pairs) place[static_cast<size_t>(pair.*end)] = 0;
  TapPixels pixels{total, {}};
  for (Dim p = 0; p < total; ++p) {
    if (place[static_cast<size_t>(p)] < 0) continue;
    place[static_cast<size_t>(p)] = pixels.count();
    pixels.used.push_back(p);
  }
  for (TapRun& pair : pairs) pair.*end = place[static_cast<size_t>(pair.*end)];
  return pixels;
}

std::vector<TapRun> joined(const std::vector<TapRun>& pairs) {
  std::vector<TapRun> runs;
  for (const TapRun& next : pairs) {
    TapRun* last = runs.empty() ? nullptr : &runs.back();
    if (last && last->tap == next.tap && last->from + last->count == next.from &&
        last->to + last->count == next.to)
      ++last->count;
    else
      runs.push_back(next);
  }
  return runs;
}

}  // namespace

bool taps_suit(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return f.groups == 1 && f.channels % 16 == 0 && f.filters % 16 == 0 &&
         std::min(f.channels, f.filters) >= kLeastTapsChannels && h.out * w.out <= kMostPixels;
}

TapsForm taps_forward(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  std::vector<TapRun> pairs = pairs_of(f.window);
  TapPixels in = pack_pixels(h.in * w.in, pairs, &TapRun::from);
  TapPixels out = pack_pixels(h.out * w.out, pairs, &TapRun::to);
  return {f.batch,   std::move(in),       std::move(out), f.channels,
          f.filters, h.kernel * w.kernel, joined(pairs)};
}

TapsForm taps_backward(const Conv2dForm& f) {
  TapsForm form = taps_forward(f);
  std::swap(form.in, form.out);
  std::swap(form.depth, form.width);
  for (TapRun& run : form.runs) std::swap(run.from, run.to);
  return form;
}

namespace {

constexpr Dim kBlockNumbers = kTapsPanel * kTapsPanel;

Dim panels_of(Dim channels) { return (channels + kTapsPanel - 1) / kTapsPanel; }

template <class E>
Bytes bytes_of(Dim elements) {
  return align_up(elements * static_cast<Bytes>(sizeof(E)), 64);
}

// All pixels, shared out to threads.
template <class T>
void pack_all(const TapsLoops<T>& loops, const T* images, Dim batch, const TapPixels& pixels,
              Dim channels, bool across, int threads, Term<T>* packed) {
  const Dim count = pixels.count();
  parallel_ranges(threads, count, batch * count * channels, [&](Dim begin, Dim end) {
    loops.pack(images, batch, pixels, channels, across, begin, end, packed);
  });
}

Bytes footprint_of(const TapsForm& f) {
  return static_cast<Bytes>(f.runs.size() * sizeof(TapRun)) +
         (f.in.count() + f.out.count()) * static_cast<Bytes>(sizeof(Dim));
}

// Forward, or from dy to dx. Workspace: the input packed, the result packed, and for each thread a
// block of weights. Panels of the result are what threads share out.
template <class T>
class TapsConv final : public Kernel {
 public:
  TapsConv(TapsForm f, const Conv2dForm& conv, bool turned, int threads)
      : loops_(taps_loops(T())),
        f_(std::move(f)),
        bias_(conv.bias && !turned),
        relu_(conv.relu && !turned),
        turned_(turned),
        threads_(threads) {
    in_ = bytes_of<T>(f_.in.count() * f_.batch * f_.depth);
    out_ = bytes_of<float>(f_.out.count() * f_.batch * f_.width);
    workspace_bytes = in_ + out_ + threads * bytes_of<T>(kBlockNumbers);
    key = loops_.key;
    footprint = static_cast<Bytes>(sizeof *this) + footprint_of(f_);
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const T* w = static_cast<const T*>(in[turned_ ? 0 : 1]);
    const T* x = static_cast<const T*>(in[turned_ ? 1 : 0]);
    const float* bias = bias_ ? static_cast<const float*>(in[2]) : nullptr;
    char* base = static_cast<char*>(workspace);
    auto* packed = reinterpret_cast<Term<T>*>(base);
    auto* results = reinterpret_cast<float*>(base + in_);
    pack_all(loops_, x, f_.batch, f_.in, f_.depth, false, threads_, packed);
    const Dim panels = panels_of(f_.width);
    parallel_ranges(threads_, panels, f_.taps * f_.depth * f_.width, [&](Dim begin, Dim end) {
      auto* block = reinterpret_cast<Term<T>*>(base + in_ + out_ +
                                               omp_get_thread_num() * bytes_of<T>(kBlockNumbers));
      for (Dim panel = begin; panel < end; ++panel) {
        float* result = results + panel * kTapsPanel * f_.out.count() * f_.batch;
        loops_.add(f_, packed, w, turned_, panel, block, result);
        loops_.unpack(f_, result, panel, bias, relu_, static_cast<T*>(out[0]));
      }
    });
  }

 private:
  TapsLoops<T> loops_;
  TapsForm f_;
  bool bias_, relu_, turned_;
  int threads_;
  Bytes in_, out_;
};

// Workspace: x and dy packed.
template <class T>
class TapsWeightGradient final : public Kernel {
 public:
  TapsWeightGradient(const Conv2dForm& conv, int threads)
      : loops_(taps_loops(T())), f_(taps_forward(conv)), bias_(conv.bias), threads_(threads) {
    const Dim batch = align_up(f_.batch, kTermSize<T>);
    x_ = bytes_of<T>(f_.in.count() * batch * f_.depth);
    workspace_bytes = x_ + bytes_of<T>(f_.out.count() * batch * f_.width);
    key = loops_.key;
    footprint = static_cast<Bytes>(sizeof *this) + footprint_of(f_);
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const T *x = static_cast<const T*>(in[0]), *dy = static_cast<const T*>(in[1]);
    auto* x_packed = static_cast<Term<T>*>(workspace);
    auto* dy_packed = reinterpret_cast<Term<T>*>(static_cast<char*>(workspace) + x_);
    pack_all(loops_, x, f_.batch, f_.in, f_.depth, true, threads_, x_packed);
    pack_all(loops_, dy, f_.batch, f_.out, f_.width, true, threads_, dy_packed);
    const Dim across = panels_of(f_.width), tasks = panels_of(f_.depth) * across;
    parallel_ranges(threads_, tasks, f_.taps * f_.depth * f_.width, [&](Dim begin, Dim end) {
      for (Dim task = begin; task < end; ++task)
        loops_.sum(f_, x_packed, dy_packed, task / across, task % across,
                   static_cast<float*>(out[0]));
    });
    if (bias_) sum_bias(dy, static_cast<float*>(out[1]));
  }

 private:
  void sum_bias(const T* dy, float* db) const {
    std::fill_n(db, f_.width, 0.0f);
    for (Dim i = 0; i < f_.batch * f_.out.total; ++i)
      for (Dim o = 0; o < f_.width; ++o) db[o] += static_cast<float>(dy[i * f_.width + o]);
  }

  TapsLoops<T> loops_;
  TapsForm f_;
  bool bias_;
  int threads_;
  Bytes x_;
};

// Calls `body.template operator()<T>()` where a kernel for images of T is worth it: of bfloat16
// where the processor multiplies pairs of them.
template <class F>
std::unique_ptr<Kernel> prepare_taps(const PrepareCall& call, const Conv2dForm& f, F body) {
  const Dtype dtype = call.in[0].dtype;
  if (f.batch == 0 || !taps_suit(f) || !onednn_multiplies(dtype)) return nullptr;
  return dispatch_simd(dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (!taps_loops(T()).native) return nullptr;
    return body.template operator()<T>();
  });
}

}  // namespace

std::unique_ptr<Kernel> conv2d_taps(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  return prepare_taps(call, f, [&]<class T>() {
    return std::make_unique<TapsConv<T>>(taps_forward(f), f, false, call.backend.threads());
  });
}

std::unique_ptr<Kernel> conv2d_input_gradient_taps(const PrepareCall& call) {
  const Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  return prepare_taps(call, f, [&]<class T>() {
    return std::make_unique<TapsConv<T>>(taps_backward(f), f, true, call.backend.threads());
  });
}

// Sums into dw as it goes, hence in float32.
std::unique_ptr<Kernel> conv2d_weight_gradient_taps(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  return prepare_taps(call, f, [&]<class T>() {
    return std::make_unique<TapsWeightGradient<T>>(f, call.backend.threads());
  });
}

}  // namespace pl::cpu

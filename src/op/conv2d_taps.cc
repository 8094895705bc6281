#include "op/conv2d_taps.h"

#include <algorithm>

namespace pl::cpu {
namespace {

constexpr Dim kMostPixels = 16;      // of the smaller map
constexpr Dim kLeastChannels = 128;  // on either side: panels for two threads

std::vector<TapRun> runs_of(const Window& window) {
  const WindowAxis &h = window.h, &w = window.w;
  std::vector<TapRun> runs;
  for (Dim kh = 0; kh < h.kernel; ++kh)
    for (Dim kw = 0; kw < w.kernel; ++kw)
      for (Dim oh = 0; oh < h.out; ++oh)
        for (Dim ow = 0; ow < w.out; ++ow) {
          const Dim ih = oh * h.stride - h.before + kh * h.dilation;
          const Dim iw = ow * w.stride - w.before + kw * w.dilation;
          if (ih < 0 || ih >= h.in || iw < 0 || iw >= w.in) continue;
          const TapRun next{kh * w.kernel + kw, ih * w.in + iw, oh * w.out + ow, 1};
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
         std::min(f.channels, f.filters) >= kLeastChannels && h.out * w.out <= kMostPixels;
}

TapsForm taps_forward(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return {f.batch,   h.in * w.in,         h.out * w.out,    f.channels,
          f.filters, h.kernel * w.kernel, runs_of(f.window)};
}

TapsForm taps_backward(const Conv2dForm& f) {
  TapsForm form = taps_forward(f);
  std::swap(form.in_pixels, form.out_pixels);
  std::swap(form.depth, form.width);
  for (TapRun& run : form.runs) std::swap(run.from, run.to);
  return form;
}

}  // namespace pl::cpu

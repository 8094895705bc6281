#include "op/conv2d_taps.h"

#include <algorithm>

namespace pl::cpu {
namespace {

constexpr Dim kMostPixels = 16;      // of the smaller map
constexpr Dim kLeastChannels = 128;  // on either side: panels for two threads

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
         std::min(f.channels, f.filters) >= kLeastChannels && h.out * w.out <= kMostPixels;
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

}  // namespace pl::cpu

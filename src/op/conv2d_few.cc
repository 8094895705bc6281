#include "op/conv2d_few.h"

namespace pl::cpu {
namespace {

constexpr Dim kChunks = 64;
constexpr Dim kMostChannels = 4, kMostTaps = 32;

}  // namespace

bool few_channels(const Conv2dForm& f) {
  return f.groups == 1 && f.batch > 0 && f.channels <= kMostChannels &&
         f.window.h.kernel * f.window.w.kernel * f.channels <= kMostTaps;
}

Conv2dPoolForm FewWalk::unpooled(const Conv2dForm& f) {
  auto axis = [](Dim size) { return WindowAxis{size, size, 1, 1, 1, 0, 0}; };
  return {f, {f.batch, f.filters, {axis(f.window.h.out), axis(f.window.w.out)}}};
}

FewWalk::FewWalk(const Conv2dPoolForm& f, Dim sums) : f_(f) {
  const auto& [h, w] = f.conv.window;
  const auto& [ph, pw] = f.pool.window;
  pitch_ = (w.before + w.in + w.after) * f.conv.channels;
  lines_ = (ph.kernel - 1) * h.stride + (h.kernel - 1) * h.dilation + 1;
  for (Dim kh = 0; kh < h.kernel; ++kh)
    for (Dim kw = 0; kw < w.kernel; ++kw)
      for (Dim c = 0; c < f.conv.channels; ++c)
        taps_.push_back(kh * h.dilation * pitch_ + kw * w.dilation * f.conv.channels + c);
  for (Dim r = 0; r < ph.kernel; ++r)
    for (Dim c = 0; c < pw.kernel; ++c)
      positions_.push_back(r * h.stride * pitch_ + c * w.stride * f.conv.channels);
  line_ = {.patch = nullptr,
           .taps = nullptr,
           .positions = nullptr,
           .tap_count = static_cast<Dim>(taps_.size()),
           .rows = ph.kernel,
           .cols = pw.kernel,
           .step = pw.stride * w.stride * f.conv.channels,
           .count = pw.out,
           .filters = f.conv.filters};
  images_ = (f.conv.batch + kChunks - 1) / kChunks;
  strips_ = 1;
  strip_lines_ = ph.out;
  const Dim wanted = kChunks / f.conv.batch;  // strips of an image
  if (wanted > 1) {
    const Dim units = (h.out + wanted * kStripLines - 1) / (wanted * kStripLines);
    const Dim lines = units * kStripLines;
    strips_ = (h.out + lines - 1) / lines;
    strip_lines_ = lines / ph.stride;
  }
  chunks_ = (f.conv.batch + images_ - 1) / images_ * strips_;
  sums_ = align_up(sums, 16);
  floats_ = sums_ + align_up(lines_ * pitch_, 16);
}

// Copies the input lines from under line `oh` of the convolution on, with zeros for padding.
void FewWalk::fill(const float* image, Dim oh, float* patch) const {
  const auto& [h, w] = f_.conv.window;
  const Dim before = w.before * f_.conv.channels, width = w.in * f_.conv.channels;
  for (Dim i = 0; i < lines_; ++i) {
    float* to = patch + i * pitch_;
    const Dim ih = oh * h.stride - h.before + i;
    const bool inside = ih >= 0 && ih < h.in;
    if (!inside || pitch_ != width) std::fill(to, to + pitch_, 0.0f);
    if (inside) std::copy_n(image + ih * width, width, to + before);
  }
}

}  // namespace pl::cpu

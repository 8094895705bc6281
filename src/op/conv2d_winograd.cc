#include "op/conv2d_winograd.h"

#include <algorithm>

namespace pl::cpu {
namespace {

constexpr Dim kLeastChannels = 32;
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
  if (std::min(f.channels, f.filters) < kLeastChannels || f.channels * f.filters > kMostWeights)
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

}  // namespace pl::cpu

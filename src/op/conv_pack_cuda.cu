#include "op/cuda/conv_pack.h"
#include "op/cuda/device-inl.cuh"

namespace pl::cuda {
namespace {

// Of a packed pixel or tap: which position of the group a channel stands for.
struct PackPlace {
  int h, w, c;
};
struct PackShape {
  int group_h, group_w, step_h, step_w, taps_h, taps_w, before_h, before_w;
  int height, width, packed_h, packed_w, kernel_h, kernel_w, channels, packed_c, filters;
  __device__ PackPlace place(int q) const {
    const int at = q / channels;
    return {at / group_w, at % group_w, q % channels};
  }
  __device__ bool exists(int q) const { return q < group_h * group_w * channels; }
};

PackShape pack_shape(const Conv2dForm& f, const ConvPack& p) {
  auto small = [](Dim x) { return static_cast<int>(x); };
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return {small(p.h.group), small(p.w.group),  small(p.h.step),   small(p.w.step),
          small(p.h.taps),  small(p.w.taps),   small(p.h.before), small(p.w.before),
          small(h.in),      small(w.in),       small(p.h.size),   small(p.w.size),
          small(h.kernel),  small(w.kernel),   small(f.channels), small(p.channels),
          small(f.filters)};
}

// A thread for 8 channels of a packed pixel. Elements are only moved.
__global__ void pack_images(PackShape s, const uint16_t* x, uint16_t* packed, int64_t packs) {
  const int of_pixel = s.packed_c / 8;
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    const auto part = static_cast<int>(i % of_pixel);
    const int64_t pixel = i / of_pixel;
    const auto column = static_cast<int>(pixel % s.packed_w);
    const int64_t line = pixel / s.packed_w;
    const auto row = static_cast<int>(line % s.packed_h);
    const uint16_t* image = x + line / s.packed_h * s.height * s.width * s.channels;
    Pack<uint16_t> pack;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int q = part * 8 + j;
      const PackPlace at = s.place(q);
      const int h = row * s.step_h + at.h - s.before_h, w = column * s.step_w + at.w - s.before_w;
      const bool inside = s.exists(q) && h >= 0 && h < s.height && w >= 0 && w < s.width;
      pack.at[j] =
          inside ? image[(static_cast<int64_t>(h) * s.width + w) * s.channels + at.c] : uint16_t(0);
    }
    store_pack(packed + i * 8, pack);
  }
}

__global__ void pack_kernel(PackShape s, const uint16_t* w, uint16_t* packed, int total) {
  for (int i = static_cast<int>(thread_index()); i < total; i += static_cast<int>(thread_count())) {
    const int q = i % s.packed_c, tap = i / s.packed_c;
    const int tw = tap % s.taps_w, th = tap / s.taps_w % s.taps_h, o = tap / s.taps_w / s.taps_h;
    const PackPlace at = s.place(q);
    const int h = th * s.step_h + at.h, c = tw * s.step_w + at.w;
    const bool inside = s.exists(q) && h < s.kernel_h && c < s.kernel_w;
    packed[i] =
        inside ? w[((h * s.kernel_w + c) * s.channels + at.c) * s.filters + o] : uint16_t(0);
  }
}

template <class To, class From>
__global__ void unpack_gradient(PackShape s, const From* packed, To* dw, int total) {
  for (int i = static_cast<int>(thread_index()); i < total; i += static_cast<int>(thread_count())) {
    const int o = i % s.filters, c = i / s.filters % s.channels;
    const int tap = i / s.filters / s.channels;
    const int h = tap / s.kernel_w, w = tap % s.kernel_w;
    const int th = min(h / s.step_h, s.taps_h - 1), tw = min(w / s.step_w, s.taps_w - 1);
    const int q = ((h - th * s.step_h) * s.group_w + w - tw * s.step_w) * s.channels + c;
    dw[i] = static_cast<To>(
        widen(packed[((o * s.taps_h + th) * s.taps_w + tw) * s.packed_c + q]));
  }
}

// Taps taken together become channels all at once, with one tap left; otherwise as many as a stride
// has, so that nothing is stored twice.
PackedAxis packed_axis(const WindowAxis& a, bool together) {
  PackedAxis axis{.step = a.stride, .before = a.before};
  axis.group = together ? a.kernel : a.stride;
  axis.taps = together ? 1 : (a.kernel + a.stride - 1) / a.stride;
  axis.size = a.out + axis.taps - 1;
  return axis;
}

Launch launch_on(Backend& backend) {
  auto& device = static_cast<CudaBackend&>(backend);
  return {device.stream(), device.multiprocessors()};
}

}  // namespace

std::optional<ConvPack> conv_pack(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  if (f.groups != 1 || f.channels >= 8 || h.dilation != 1 || w.dilation != 1) return std::nullopt;
  if (h.kernel * w.kernel == 1 || h.kernel > 32 || w.kernel > 32) return std::nullopt;
  // Measured with cuDNN 9 on an H200, 3 channels: 3x3 in 1.4 ms as 1x1 of 32 channels and in 2.2 as
  // 3x3 of 8; 7x7 with stride 2 in 0.9 as 4x1 of 48 and in 1.3 as 4x4 of 16.
  constexpr Dim kMostPacked = 64;
  ConvPack pack;
  pack.h = packed_axis(h, h.kernel * w.kernel * f.channels <= kMostPacked);
  pack.w = packed_axis(w, true);
  pack.channels = align_up(pack.h.group * pack.w.group * f.channels, 8);
  if (pack.channels > 4 * kMostPacked) return std::nullopt;
  return pack;
}

void launch_pack_images(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* x, void* packed) {
  const Launch launch = launch_on(backend);
  const int64_t packs = form.batch * pack.h.size * pack.w.size * pack.channels / 8;
  pack_images<<<launch.blocks(packs, 256), 256, 0, launch.stream>>>(
      pack_shape(form, pack), static_cast<const uint16_t*>(x), static_cast<uint16_t*>(packed),
      packs);
}

void launch_pack_kernel(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                        const void* w, void* packed) {
  const Launch launch = launch_on(backend);
  const auto total = static_cast<int>(form.filters * pack.h.taps * pack.w.taps * pack.channels);
  pack_kernel<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
      pack_shape(form, pack), static_cast<const uint16_t*>(w), static_cast<uint16_t*>(packed),
      total);
}

void launch_unpack_gradient(Backend& backend, const Conv2dForm& form, const ConvPack& pack,
                            Dtype from, const void* packed, Dtype to, void* dw) {
  const Launch launch = launch_on(backend);
  const auto total =
      static_cast<int>(form.window.h.kernel * form.window.w.kernel * form.channels * form.filters);
  auto go = [&]<class To, class From>() {
    unpack_gradient<To, From><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
        pack_shape(form, pack), static_cast<const From*>(packed), static_cast<To*>(dw), total);
  };
  auto of = [&]<class From>() {
    if (to == Dtype::float32) return go.template operator()<float, From>();
    go.template operator()<From, From>();
  };
  if (from == Dtype::bfloat16) return of.template operator()<Bf16>();
  of.template operator()<Half>();
}

}  // namespace pl::cuda

// CUDA kernels of ops that move bytes: concatenate, slice, pad, crop, rows of bands, copies.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

// `lines` runs of `run` units, from and to places `from_line` and `to_line` units apart.
template <class U>
__global__ void copy_lines(const U* x, U* y, int64_t lines, int64_t run, int64_t from_line,
                           int64_t to_line) {
  for (int64_t i = thread_index(); i < lines * run; i += thread_count())
    y[i / run * to_line + i % run] = x[i / run * from_line + i % run];
}

struct LineCopy {
  int64_t lines, run, from_line, to_line;  // bytes, but for lines
};

// Bytes that all sizes and offsets are multiples of, 16 at most.
int unit_of_bytes(std::initializer_list<int64_t> sizes) {
  for (int unit = 16; unit > 1; unit /= 2)
    if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t s) { return s % unit == 0; }))
      return unit;
  return 1;
}

// `offset`: of one of the pointers from an address that is a multiple of `aligned`.
void launch_lines(const Launch& launch, const char* from, char* to, const LineCopy& c,
                  int64_t offset, Bytes aligned) {
  if (c.lines * c.run == 0) return;
  const int unit = unit_of_bytes({c.run, c.from_line, c.to_line, offset, aligned});
  auto go = [&]<class U>() {
    const auto size = static_cast<int64_t>(sizeof(U));
    copy_lines<U><<<launch.blocks(c.lines * c.run / size, 256), 256, 0, launch.stream>>>(
        reinterpret_cast<const U*>(from), reinterpret_cast<U*>(to), c.lines, c.run / size,
        c.from_line / size, c.to_line / size);
  };
  if (unit == 16) return go.template operator()<uint4>();
  if (unit >= 4) return go.template operator()<uint32_t>();
  if (unit == 2) return go.template operator()<uint16_t>();
  go.template operator()<uint8_t>();
}

// A tensor seen from an axis: `outer` runs of `run` bytes, `element` for a step along the axis.
struct AxisView {
  int64_t outer = 1, element = 1, run = 0;
};
AxisView axis_view(const Meta& meta, int64_t axis) {
  AxisView view;
  for (int i = 0; i < axis; ++i) view.outer *= meta.shape[i];
  view.element = size_of(meta.dtype);
  for (int i = static_cast<int>(axis) + 1; i < meta.shape.rank(); ++i)
    view.element *= meta.shape[i];
  view.run = view.element * meta.shape[static_cast<int>(axis)];
  return view;
}

}  // namespace

std::unique_ptr<Kernel> copy_operand(const PrepareCall& call) {
  const size_t from = call.in.size() - 1;
  const auto bytes = static_cast<size_t>(call.out[0].bytes());
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (bytes > 0 && in[from] != out[0])
      cudaMemcpyAsync(out[0], in[from], bytes, cudaMemcpyDeviceToDevice, launch.stream);
  });
}

std::unique_ptr<Kernel> concatenate(const PrepareCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  const AxisView whole = axis_view(call.out[0], axis);
  std::vector<int64_t> runs;
  for (const Meta& part : call.in) runs.push_back(axis_view(part, axis).run);
  auto held = static_cast<Bytes>(runs.size() * sizeof(int64_t));
  const Bytes aligned = call.alignment();
  auto kernel =
      make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
        int64_t at = 0;
        for (size_t p = 0; p < runs.size(); at += runs[p++])
          launch_lines(launch, static_cast<const char*>(in[p]), static_cast<char*>(out[0]) + at,
                       {whole.outer, runs[p], runs[p], whole.run}, at, aligned);
      });
  kernel->footprint += held;
  return kernel;
}

std::unique_ptr<Kernel> slice(const PrepareCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  const AxisView whole = axis_view(call.in[0], axis), part = axis_view(call.out[0], axis);
  const int64_t skip = call.attrs.integer("begin") * whole.element;
  const Bytes aligned = call.alignment();
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    launch_lines(launch, static_cast<const char*>(in[0]) + skip, static_cast<char*>(out[0]),
                 {part.outer, part.run, whole.run, part.run}, skip, aligned);
  });
}

std::unique_ptr<Kernel> slice_gradient(const PrepareCall& call) {
  const int64_t axis = call.attrs.integer("axis");
  const AxisView whole = axis_view(call.out[0], axis), part = axis_view(call.in[0], axis);
  const int64_t skip = call.attrs.integer("begin") * whole.element;
  const Bytes aligned = call.alignment();
  const auto bytes = static_cast<size_t>(call.out[0].bytes());
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (bytes > 0) cudaMemsetAsync(out[0], 0, bytes, launch.stream);
    launch_lines(launch, static_cast<const char*>(in[0]), static_cast<char*>(out[0]) + skip,
                 {part.outer, part.run, part.run, whole.run}, skip, aligned);
  });
}

namespace {

// Images (B, H, W, C) in lines of units: the large ones have zeros around the small ones.
struct PadForm {
  int64_t batch, small, large, line, before, wide, top;
};

template <class U>
__global__ void pad_lines(PadForm f, const U* x, U* y) {
  for (int64_t i = thread_index(); i < f.batch * f.large * f.wide; i += thread_count()) {
    const int64_t row = i / f.wide % f.large - f.top, at = i % f.wide - f.before;
    const bool inside = row >= 0 && row < f.small && at >= 0 && at < f.line;
    const int64_t image = i / (f.wide * f.large);
    y[i] = inside ? x[(image * f.small + row) * f.line + at] : U{};
  }
}
template <class U>
__global__ void crop_lines(PadForm f, const U* x, U* y) {
  for (int64_t i = thread_index(); i < f.batch * f.small * f.line; i += thread_count()) {
    const int64_t row = i / f.line % f.small + f.top, image = i / (f.line * f.small);
    y[i] = x[(image * f.large + row) * f.wide + f.before + i % f.line];
  }
}

std::unique_ptr<Kernel> pad_kernel(const PrepareCall& call, bool crops) {
  const Meta &small = crops ? call.out[0] : call.in[0], &large = crops ? call.in[0] : call.out[0];
  const auto& pads = call.attrs.list("pads");
  const int64_t pixel = size_of(small.dtype) * small.shape[3];
  const int unit = pixel > 0 ? unit_of_bytes({pixel, call.alignment()}) : 1;
  const PadForm f{small.shape[0],
                  small.shape[1],
                  large.shape[1],
                  pixel * small.shape[2] / unit,
                  pixel * pads[2] / unit,
                  pixel * large.shape[2] / unit,
                  pads[0]};
  auto body = [&]<class U>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      const int64_t total = crops ? f.batch * f.small * f.line : f.batch * f.large * f.wide;
      if (total == 0) return;
      const unsigned blocks = launch.blocks(total, 256);
      if (crops)
        crop_lines<U><<<blocks, 256, 0, launch.stream>>>(f, input<U>(in, 0), output<U>(out, 0));
      else
        pad_lines<U><<<blocks, 256, 0, launch.stream>>>(f, input<U>(in, 0), output<U>(out, 0));
    });
  };
  if (unit == 16) return body.template operator()<uint4>();
  if (unit == 8) return body.template operator()<uint2>();
  if (unit == 4) return body.template operator()<uint32_t>();
  if (unit == 2) return body.template operator()<uint16_t>();
  return body.template operator()<uint8_t>();
}

// First rows of bands, and the rows that each answers for: band b's own are [own[b], own[b + 1]).
struct BandRows {
  int bands = 0;
  int starts[512] = {}, own[513] = {};
};
bool band_rows(const Attrs& attrs, BandRows* rows) {
  if (!attrs.has("starts")) return true;
  const auto &starts = attrs.list("starts"), &own = attrs.list("own");
  if (starts.size() > std::size(rows->starts)) return false;
  rows->bands = static_cast<int>(starts.size());
  for (size_t b = 0; b < starts.size(); ++b) rows->starts[b] = static_cast<int>(starts[b]);
  for (size_t b = 0; b <= starts.size(); ++b) rows->own[b] = static_cast<int>(own[b]);
  return true;
}

template <class U>
__global__ void keep_own_rows(const U* x, U* y, int64_t total, int64_t rows, int64_t row,
                              BandRows bands, const StepParams* params) {
  int64_t first = 0, last = rows;
  if (bands.bands > 0) {
    const int64_t b = params->band;
    first = bands.own[b] - bands.starts[b];
    last = bands.own[b + 1] - bands.starts[b];
  }
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const int64_t r = i / row % rows;
    y[i] = r >= first && r < last ? x[i] : U{};
  }
}

// `row` bytes of an image row.
__global__ void place_own_rows(const uint8_t* x, uint8_t* y, int64_t row, int64_t height,
                               BandRows bands, const StepParams* params) {
  const int64_t b = params->band, bytes = (bands.own[b + 1] - bands.own[b]) * row;
  x += (bands.own[b] - bands.starts[b]) * row;
  y += (params->row_offset * height + bands.own[b]) * row;
  const bool words =
      (row | static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y))) %
          16 ==
      0;
  const int64_t count = words ? bytes / 16 : bytes;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    if (words)
      reinterpret_cast<uint4*>(y)[i] = reinterpret_cast<const uint4*>(x)[i];
    else
      y[i] = x[i];
  }
}

}  // namespace

std::unique_ptr<Kernel> pad(const PrepareCall& call) { return pad_kernel(call, false); }
std::unique_ptr<Kernel> crop(const PrepareCall& call) { return pad_kernel(call, true); }

std::unique_ptr<Kernel> own_rows(const PrepareCall& call) {
  BandRows bands;
  if (!band_rows(call.attrs, &bands)) return nullptr;
  const Shape& x = call.in[0].shape;
  const int64_t rows = x[1], row = x.without_front().without_front().elements();
  const int64_t total = x.elements();
  return dispatch_size(call.in[0].dtype, [&]<class U>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        keep_own_rows<U><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
            input<U>(in, 0), output<U>(out, 0), total, rows, row, bands, input<StepParams>(in, 1));
    });
  });
}

std::unique_ptr<Kernel> place_rows(const PrepareCall& call) {
  BandRows bands;
  if (!band_rows(call.attrs, &bands)) return nullptr;
  const Meta &whole = call.in[0], &band = call.in[1];
  const int64_t height = whole.shape[1], lines = band.shape[1];
  const int64_t row = lines > 0 ? band.bytes() / lines : 0, bytes = band.bytes();
  const auto all = static_cast<size_t>(whole.bytes());
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (in[0] != out[0] && all > 0)
      cudaMemcpyAsync(out[0], in[0], all, cudaMemcpyDeviceToDevice, launch.stream);
    if (bytes > 0)
      place_own_rows<<<launch.blocks(bytes / 16 + 1, 256), 256, 0, launch.stream>>>(
          input<uint8_t>(in, 1), output<uint8_t>(out, 0), row, height, bands,
          input<StepParams>(in, 2));
  });
}

}  // namespace pl::cuda

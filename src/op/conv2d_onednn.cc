// oneDNN kernels of conv2d, float32 and bfloat16. Activations stay plain NHWC. Weights are taken in
// the layout the library likes best (plain HWIO can be 2.7 times slower): they are packed into the
// workspace before each run, and weight gradients are unpacked after it. Both cost microseconds.
#include <algorithm>
#include <limits>
#include <string_view>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/parallel.h"
#include "op/conv2d.h"
#include "op/kernel.h"
#include "op/relu.h"

namespace pl::cpu {
namespace {

// Descriptions of one convolution in oneDNN's order of dimensions: images N C H W, kernels
// [groups] O I KH KW.
struct Descs {
  OnednnDesc x, y, bias;
  OnednnDesc plain;   // HWIO weights
  OnednnDesc packed;  // weights in any layout
  dnnl_dims_t strides, dilations, before, after;
};

// The library counts blocks of a batch in 32 bits: from 2^29 images on it divides by zero. (Nobody
// trains on such a batch, but the search for the largest one that fits asks.)
constexpr Dim kMostImages = Dim{1} << 27;

// On large images the library tries every number of pixels to work off at once, for half a second
// and more. Where a filter sees one pixel at a time, each row may as well be an image of its own.
Conv2dForm with_rows_as_images(Conv2dForm f) {
  constexpr Dim kManyPixels = Dim{1} << 18;
  WindowAxis &h = f.window.h, &w = f.window.w;
  for (const WindowAxis* axis : {&h, &w})
    if (axis->kernel != 1 || axis->stride != 1 || axis->before != 0 || axis->after != 0) return f;
  if (f.groups != 1 || h.in * w.in < kManyPixels) return f;
  const auto images = checked_mul(f.batch, h.in);
  if (!images || *images > kMostImages) return f;
  f.batch = *images;
  h.in = h.out = 1;
  return f;
}

// `weights`: the dtype of w or dw. A bias is float32.
Descs describe(const Conv2dForm& form, Dtype images, Dtype weights) {
  const Conv2dForm f = with_rows_as_images(form);
  const WindowAxis &h = f.window.h, &w = f.window.w;
  std::vector<int64_t> kernel{f.filters / f.groups, f.channels / f.groups, h.kernel, w.kernel};
  if (f.groups > 1) kernel.insert(kernel.begin(), f.groups);
  Descs d{};
  const auto type = onednn_type(images), weight_type = onednn_type(weights);
  d.x = onednn_desc({f.batch, f.channels, h.in, w.in}, dnnl_nhwc, type);
  d.y = onednn_desc({f.batch, f.filters, h.out, w.out}, dnnl_nhwc, type);
  if (f.bias) d.bias = onednn_desc({f.filters}, dnnl_a);
  d.plain = onednn_desc(kernel, f.groups > 1 ? dnnl_hwigo : dnnl_hwio, weight_type);
  d.packed = onednn_desc(kernel, dnnl_format_tag_any, weight_type);
  const WindowAxis* axes[] = {&h, &w};
  for (int i = 0; i < 2; ++i) {
    d.strides[i] = axes[i]->stride;
    d.dilations[i] = axes[i]->dilation - 1;  // oneDNN counts the gaps
    d.before[i] = axes[i]->before;
    d.after[i] = axes[i]->after;
  }
  return d;
}

constexpr Bytes kGemmBytes = 5000 * kKiB;  // measured: 3.7 to 5.8 MiB

// Which argument of the library's an operand of ours is.
struct Binding {
  int argument;
  dnnl_query_t query;
  int query_index;
  int in = -1, out = -1;  // index among our inputs or outputs
};

// A convolution and the reorder of its weights, if one is needed. Workspace: packed weights, then
// the library's scratchpad, which the two use in turn.
class Conv2dOnednn final : public Kernel {
 public:
  Conv2dOnednn(CpuBackend& backend, const char* direction, OnednnPrimitiveDesc desc,
               const Descs& descs, Binding weights, const std::vector<Binding>& others)
      : conv_(backend, std::move(desc)), weights_(weights) {
    const auto packed = conv_.query(weights.query, weights.query_index);
    const bool before = weights.in >= 0;
    reorder_ = onednn_reorder(backend, before ? descs.plain.get() : packed,
                              before ? packed : descs.plain.get());
    packed_ = conv_.bind(weights.argument, packed);
    for (const Binding& other : others) {
      slots_.push_back(conv_.bind(other.argument, conv_.query(other.query, other.query_index)));
      operands_.push_back(other);
    }
    Bytes scratch = conv_.scratchpad_bytes();
    if (scratch > 0)
      conv_scratch_ = conv_.bind(DNNL_ARG_SCRATCHPAD, conv_.query(dnnl_query_scratchpad_md));
    if (reorder_) {
      from_ = reorder_.bind(DNNL_ARG_FROM, reorder_.query(dnnl_query_src_md));
      to_ = reorder_.bind(DNNL_ARG_TO, reorder_.query(dnnl_query_dst_md));
      packed_bytes_ =
          align_up(static_cast<Bytes>(dnnl_memory_desc_get_size(packed)), CpuBackend::kAlignment);
      if (reorder_.scratchpad_bytes() > 0)
        reorder_scratch_ =
            reorder_.bind(DNNL_ARG_SCRATCHPAD, reorder_.query(dnnl_query_scratchpad_md));
      scratch = std::max(scratch, reorder_.scratchpad_bytes());
    }
    workspace_bytes = packed_bytes_ + scratch;
    key = std::string(conv_.implementation()) + ":" + onednn_layout(packed);
    // Sums over the batch are split between threads, and added up afterwards.
    if (!before) key += ":threads=" + std::to_string(backend.threads());
    library = onednn_part(std::string("convolution ") + direction, packed);
    // On tiny images the library multiplies through its gemm, which takes memory of its own.
    if (key.find("gemm") != std::string::npos) transient = kGemmBytes;
    footprint = static_cast<Bytes>(sizeof *this) + conv_.footprint() + reorder_.footprint();
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const bool before = weights_.in >= 0;
    void* plain = before ? in[weights_.in] : out[weights_.out];
    void* packed = reorder_ ? workspace : plain;
    void* scratch = static_cast<char*>(workspace) + packed_bytes_;
    for (size_t i = 0; i < slots_.size(); ++i)
      conv_.set(slots_[i], operands_[i].in >= 0 ? in[operands_[i].in] : out[operands_[i].out]);
    conv_.set(packed_, packed);
    if (conv_scratch_ >= 0) conv_.set(conv_scratch_, scratch);
    if (reorder_) {
      reorder_.set(from_, before ? plain : packed);
      reorder_.set(to_, before ? packed : plain);
      if (reorder_scratch_ >= 0) reorder_.set(reorder_scratch_, scratch);
    }
    if (reorder_ && before) reorder_.execute();
    conv_.execute();
    if (reorder_ && !before) reorder_.execute();
    if (relu) relu->run(out, out, nullptr);
  }

  // Runs behind the convolution: the library's own would turn NaN into 0.
  std::unique_ptr<Kernel> relu;

 private:
  OnednnCall conv_, reorder_;
  Binding weights_;
  std::vector<int> slots_;
  std::vector<Binding> operands_;
  int packed_ = -1, conv_scratch_ = -1, from_ = -1, to_ = -1, reorder_scratch_ = -1;
  Bytes packed_bytes_ = 0;
};

// The library counts the elements of an image in 32 bits.
bool countable(Dim height, Dim width, Dim channels) {
  const auto pixels = checked_mul(height, width);
  const auto elements = pixels ? checked_mul(*pixels, channels) : pixels;
  return elements && *elements <= std::numeric_limits<int32_t>::max();
}

bool supported(const PrepareCall& call, const Conv2dForm& f) {
  if (f.batch > kMostImages || !countable(f.window.h.in, f.window.w.in, f.channels) ||
      !countable(f.window.h.out, f.window.w.out, f.filters))
    return false;
  return onednn_multiplies(call.in[0].dtype) && f.batch > 0;
}

// With 16-bit operands the library has fast code for part of what it has in float32. What it
// prefers for strided gradients of depthwise convolutions takes a thousand times as long as what is
// next.
bool worth_it(const PrepareCall& call, const Conv2dForm& f, const OnednnPrimitiveDesc& desc) {
  if (call.in[0].dtype == Dtype::float32) return true;
  auto slow = [&] {
    const char* name = "";
    dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &name);
    return f.groups > 1 && std::string_view(name).starts_with("brgconv_strided");
  };
  while (slow())
    if (dnnl_primitive_desc_next_impl(desc.get()) != dnnl_success) return false;
  return onednn_is_fast(desc);
}

// The backward descriptors ask for a forward one as a hint. False when the library has none.
bool describe_forward(CpuBackend& backend, const Descs& d, const OnednnAttr& attr,
                      OnednnPrimitiveDesc& out) {
  return dnnl_convolution_forward_primitive_desc_create(
             out.out(), backend.engine(), dnnl_forward_training, dnnl_convolution_direct, d.x.get(),
             d.packed.get(), d.bias.get(), d.y.get(), d.strides, d.dilations, d.before, d.after,
             attr.get()) == dnnl_success;
}

}  // namespace

std::unique_ptr<Kernel> conv2d_onednn(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  const Descs d = describe(f, call.in[0].dtype, call.in[1].dtype);
  OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc desc;
  if (!describe_forward(backend, d, attr, desc) || !worth_it(call, f, desc)) return nullptr;
  std::vector<Binding> others{{DNNL_ARG_SRC, dnnl_query_src_md, 0, 0, -1},
                              {DNNL_ARG_DST, dnnl_query_dst_md, 0, -1, 0}};
  if (f.bias) others.push_back({DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2, -1});
  auto kernel = std::make_unique<Conv2dOnednn>(
      backend, "forward", std::move(desc), d,
      Binding{DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1, -1}, others);
  if (f.relu) kernel->relu = relu_simd({call.backend, call.out, call.out, call.attrs});
  return kernel;
}

std::unique_ptr<Kernel> conv2d_input_gradient_onednn(const PrepareCall& call) {
  const Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  const Descs d = describe(f, call.in[1].dtype, call.in[0].dtype);
  const OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc hint, desc;
  if (!describe_forward(backend, d, attr, hint)) return nullptr;
  if (dnnl_convolution_backward_data_primitive_desc_create(
          desc.out(), backend.engine(), dnnl_convolution_direct, d.x.get(), d.packed.get(),
          d.y.get(), d.strides, d.dilations, d.before, d.after, hint.get(),
          attr.get()) != dnnl_success ||
      !worth_it(call, f, desc))
    return nullptr;
  return std::make_unique<Conv2dOnednn>(
      backend, "backward data", std::move(desc), d,
      Binding{DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 0, -1},
      std::vector<Binding>{{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 1, -1},
                           {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, -1, 0}});
}

namespace {

std::unique_ptr<Kernel> weight_gradient(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  auto& backend = static_cast<CpuBackend&>(call.backend);
  const Descs d = describe(f, call.in[0].dtype, call.out[0].dtype);
  const OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc hint, desc;
  // Forward weights have the images' dtype, whatever that of dw.
  const Descs forward = describe(f, call.in[0].dtype, call.in[0].dtype);
  if (!describe_forward(backend, forward, attr, hint)) return nullptr;
  if (dnnl_convolution_backward_weights_primitive_desc_create(
          desc.out(), backend.engine(), dnnl_convolution_direct, d.x.get(), d.packed.get(),
          d.bias.get(), d.y.get(), d.strides, d.dilations, d.before, d.after, hint.get(),
          attr.get()) != dnnl_success ||
      !worth_it(call, f, desc))
    return nullptr;
  std::vector<Binding> others{{DNNL_ARG_SRC, dnnl_query_src_md, 0, 0, -1},
                              {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 1, -1}};
  if (f.bias) others.push_back({DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, -1, 1});
  return std::make_unique<Conv2dOnednn>(
      backend, "backward weights", std::move(desc), d,
      Binding{DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, -1, 0}, others);
}

// The weight gradient of 16-bit images, each thread with a part of the batch and a primitive of its
// own. The library's own threads meet at barriers where they spin: beside another busy process each
// of them costs a time slice. Parts are added up in their order.
class WeightGradientParts final : public Kernel {
 public:
  WeightGradientParts(const PrepareCall& call, std::vector<std::unique_ptr<Kernel>> parts)
      : parts_(std::move(parts)), threads_(call.backend.threads()), batch_(call.in[0].shape[0]) {
    for (size_t i = 0; i < 2; ++i) image_bytes_[i] = call.in[i].bytes() / batch_;
    for (const Meta& meta : call.out) {
      elements_.push_back(meta.elements());
      sums_bytes_ += align_up(meta.bytes(), CpuBackend::kAlignment);
    }
    for (const auto& part : parts_) {
      space_ = std::max(space_, align_up(part->workspace_bytes, CpuBackend::kAlignment));
      footprint += footprint > 0 ? part->footprint / 2 : part->footprint;  // without a team: less
      transient = std::max(transient, part->transient);
    }
    space_ += sums_bytes_;
    workspace_bytes = space_ * static_cast<Bytes>(parts_.size());
    footprint += static_cast<Bytes>(sizeof *this);
    key = parts_[0]->key + ":parts";
    library = parts_[0]->library;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const Dim count = static_cast<Dim>(parts_.size());
    char* base = static_cast<char*>(workspace);
    parallel_ranges(threads_, count, kParallelGrain, [&](Dim begin, Dim end) {
      for (Dim p = begin; p < end; ++p) run_part(p, in, out, base + p * space_);
    });
    Bytes at = 0;
    for (size_t o = 0; o < elements_.size(); ++o) {
      float* sum = static_cast<float*>(out[o]);
      parallel_ranges(threads_, elements_[o], elements_[o] * count, [&](Dim begin, Dim end) {
        for (Dim p = 1; p < count; ++p) {
          const float* part = reinterpret_cast<const float*>(base + p * space_ + at);
          for (Dim i = begin; i < end; ++i) sum[i] += part[i];
        }
      });
      at += align_up(elements_[o] * static_cast<Bytes>(sizeof(float)), CpuBackend::kAlignment);
    }
  }

  static Dim first_image(Dim batch, Dim part, Dim parts) { return batch * part / parts; }

 private:
  // A part's sums lie in front of its workspace, but for those of the first.
  void run_part(Dim p, void* const* in, void* const* out, char* space) {
    const Dim first = first_image(batch_, p, static_cast<Dim>(parts_.size()));
    void* ins[2] = {static_cast<char*>(in[0]) + first * image_bytes_[0],
                    static_cast<char*>(in[1]) + first * image_bytes_[1]};
    void* outs[2] = {out[0], elements_.size() > 1 ? out[1] : nullptr};
    Bytes at = 0;
    for (size_t o = 0; p > 0 && o < elements_.size(); ++o) {
      outs[o] = space + at;
      at += align_up(elements_[o] * static_cast<Bytes>(sizeof(float)), CpuBackend::kAlignment);
    }
    parts_[static_cast<size_t>(p)]->run(ins, outs, space + sums_bytes_);
  }

  std::vector<std::unique_ptr<Kernel>> parts_;
  int threads_;
  Dim batch_;
  Bytes image_bytes_[2] = {}, sums_bytes_ = 0, space_ = 0;
  std::vector<Dim> elements_;  // of each output
};

std::unique_ptr<Kernel> weight_gradient_parts(const PrepareCall& call) {
  const auto& backend = static_cast<const CpuBackend&>(call.backend);
  const Dim batch = call.in[0].shape[0], parts = backend.threads();
  std::vector<std::unique_ptr<Kernel>> kernels;
  // A primitive is made for as many threads as there are when it is.
  struct Alone {
    const CpuBackend& backend;
    explicit Alone(const CpuBackend& whole) : backend(whole) { omp_set_num_threads(1); }
    ~Alone() { backend.use(); }
  } alone(backend);
  for (Dim p = 0; p < parts; ++p) {
    Metas in = call.in;
    for (Meta& meta : in)
      meta.shape[0] = WeightGradientParts::first_image(batch, p + 1, parts) -
                      WeightGradientParts::first_image(batch, p, parts);
    kernels.push_back(weight_gradient({call.backend, in, call.out, call.attrs}));
  }
  for (const auto& kernel : kernels)
    if (!kernel) return nullptr;
  return std::make_unique<WeightGradientParts>(call, std::move(kernels));
}

}  // namespace

std::unique_ptr<Kernel> conv2d_weight_gradient_onednn(const PrepareCall& call) {
  bool sums = call.in[0].dtype == Dtype::bfloat16 && call.backend.threads() > 1;
  for (const Meta& meta : call.out) sums = sums && meta.dtype == Dtype::float32;
  if (sums && call.in[0].shape[0] >= call.backend.threads()) return weight_gradient_parts(call);
  return weight_gradient(call);
}

}  // namespace pl::cpu

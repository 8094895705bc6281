// CUDA kernels of convolutions: by cuDNN, and those of one tap as matrix products.
#include <optional>

#include "backend/cuda/cuda_libraries.h"
#include "op/conv2d.h"
#include "op/cuda/conv_pack.h"
#include "op/cuda/dnn_graph.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"

namespace pl::cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{1} << 30;
enum : int64_t { kX = 1, kW, kY, kBias };

Dims image_strides(Dim height, Dim width, Dim channels) {
  return {height * width * channels, 1, width * channels, channels};
}

// Kernels are (taps, C, O) here and (O, taps, C) there: turned around in workspace. Few channels
// are packed there as well.
class ConvDnn final : public Kernel {
 public:
  ConvDnn(CudaBackend& backend, const Conv2dForm& form, Dtype dtype, ConvKind kind,
          const PrepareCall& call)
      : backend_(backend),
        f_(form),
        dtype_(dtype),
        kind_(kind),
        aligned_(call.alignment()),
        graph_(backend) {
    if (kind == ConvKind::weight_gradient) out_ = call.out[0].dtype;
    footprint = static_cast<Bytes>(sizeof *this) + 64 * kKiB;
    library = "cudnn";
  }

  // `packed`: see conv_pack.h. `biased`: the library adds the bias.
  bool prepare(const std::optional<ConvPack>& packed, bool biased) {
    pack_ = packed;
    biased_ = biased;
    const WindowAxis &h = f_.window.h, &w = f_.window.w;
    describe();
    if (!graph_.build(dtype_ == Dtype::float32, kMostWorkspace)) return false;
    const Dim depth = pack_ ? pack_->channels : f_.channels / f_.groups;
    rows_ = (pack_ ? pack_->h.taps * pack_->w.taps : h.kernel * w.kernel) * depth;
    images_at_ = align_up(rows_ * f_.filters * size_of(dtype_), CudaBackend::kAlignment);
    const Bytes images =
        pack_ ? f_.batch * pack_->h.size * pack_->w.size * depth * size_of(dtype_) : 0;
    scratch_at_ = align_up(images_at_ + images, CudaBackend::kAlignment);
    sums_at_ = align_up(scratch_at_ + graph_.workspace(), CudaBackend::kAlignment);
    workspace_bytes = sums_at_;
    if (kind_ == ConvKind::weight_gradient && f_.bias)
      workspace_bytes += bias_gradient_bytes(backend_, dtype_, pixels(), f_.filters);
    key = graph_.name() + (pack_ ? "+pack" : "") + (biased_ ? "+bias" : "");
    return true;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    graph_.set(kW, space);
    if (kind_ == ConvKind::forward) {
      turn(in[1], space);
      graph_.set(kX, images(in[0], space));
      graph_.set(kY, out[0]);
      if (biased_) graph_.set(kBias, in[2]);
    } else if (kind_ == ConvKind::input_gradient) {
      turn(in[0], space);
      graph_.set(kY, in[1]);
      graph_.set(kX, out[0]);
    } else {
      graph_.set(kX, images(in[0], space));
      graph_.set(kY, in[1]);
    }
    graph_.run(space + scratch_at_);
    if (kind_ == ConvKind::forward && ((f_.bias && !biased_) || f_.relu))
      launch_bias(backend_, dtype_, out[0], wide(dtype_), f_.bias && !biased_ ? in[2] : nullptr,
                  pixels(), f_.filters, f_.relu);
    if (kind_ == ConvKind::weight_gradient) {
      if (pack_)
        launch_unpack_gradient(backend_, f_, *pack_, dtype_, space, out_, out[0]);
      else
        launch_transpose(backend_, dtype_, space, out_, out[0], f_.filters, rows_);
      if (f_.bias)
        launch_bias_gradient(backend_, dtype_, in[1], out[1], pixels(), f_.filters, false,
                             space + sums_at_);
    }
    check_launch(key.c_str());
  }

 private:
  Dim pixels() const { return f_.batch * f_.window.h.out * f_.window.w.out; }
  void turn(const void* w, char* space) {
    if (pack_) return launch_pack_kernel(backend_, f_, *pack_, w, space);
    launch_transpose(backend_, dtype_, w, dtype_, space, rows_, f_.filters);
  }
  const void* images(const void* x, char* space) {
    if (!pack_) return x;
    launch_pack_images(backend_, f_, *pack_, x, space + images_at_);
    return space + images_at_;
  }

  void describe() {
    WindowAxis h = f_.window.h, w = f_.window.w;
    Dim channels = f_.channels, depth = f_.channels / f_.groups;
    if (pack_) {
      h = {pack_->h.size, h.out, pack_->h.taps, 1, 1, 0, 0};
      w = {pack_->w.size, w.out, pack_->w.taps, 1, 1, 0, 0};
      channels = depth = pack_->channels;
    }
    const Dims x{f_.batch, channels, h.in, w.in}, y{f_.batch, f_.filters, h.out, w.out};
    const Dims kernel{f_.filters, depth, h.kernel, w.kernel};
    const Dims x_strides = image_strides(h.in, w.in, channels);
    const Dims y_strides = image_strides(h.out, w.out, f_.filters);
    const Dims w_strides = image_strides(h.kernel, w.kernel, depth);
    const DnnTensor bias{
        kBias, wide(dtype_), {1, f_.filters, 1, 1}, {f_.filters, 1, f_.filters, f_.filters}};
    // Kernels, and images that are packed, lie in workspace.
    graph_.convolution(kind_, {kX, dtype_, x, x_strides, pack_ ? kFullAlignment : aligned_},
                       {kW, dtype_, kernel, w_strides}, {kY, dtype_, y, y_strides, aligned_},
                       {.before = {h.before, w.before},
                        .after = {h.after, w.after},
                        .stride = {h.stride, w.stride},
                        .dilation = {h.dilation, w.dilation}},
                       biased_ ? &bias : nullptr);
  }

  CudaBackend& backend_;
  Conv2dForm f_;
  Dtype dtype_, out_ = Dtype::float32;
  ConvKind kind_;
  Bytes aligned_;  // images, which may be a loop's slices
  DnnGraph graph_;
  std::optional<ConvPack> pack_;
  bool biased_ = false;
  Dim rows_ = 0;
  Bytes images_at_ = 0, scratch_at_ = 0, sums_at_ = 0;
};

// A kernel of one tap is a matrix product of pixels.
class ConvProduct final : public Kernel {
 public:
  ConvProduct(const PrepareCall& call, const Conv2dForm& form, ConvKind kind)
      : backend_(backend_of(call)),
        f_(form),
        dtype_(call.in[0].dtype),
        kind_(kind),
        aligned_(call.alignment()) {
    footprint = static_cast<Bytes>(sizeof *this);
    library = "cublasLt";
  }
  // `added`: to the images' gradient, the third operand.
  bool prepare(Dtype out, bool added) {
    added_ = added;
    ProductForm p{.in = dtype_, .out = out, .alignment = product_alignment(aligned_)};
    p.added = added;
    if (kind_ == ConvKind::forward) {
      p.m = pixels(), p.n = f_.filters, p.k = f_.channels;
    } else if (kind_ == ConvKind::input_gradient) {
      p.m = pixels(), p.n = f_.channels, p.k = f_.filters, p.transpose_b = true;
    } else {
      p.m = f_.channels, p.n = f_.filters, p.k = pixels(), p.transpose_a = true;
    }
    product_ = Product::prepare(backend_, p);
    if (!product_) return false;
    key = product_->key();
    sums_at_ = align_up(product_->workspace_bytes(), CudaBackend::kAlignment);
    workspace_bytes = sums_at_;
    if (kind_ == ConvKind::weight_gradient && f_.bias)
      workspace_bytes += bias_gradient_bytes(backend_, dtype_, pixels(), f_.filters);
    return true;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    if (kind_ == ConvKind::input_gradient)
      product_->run(in[1], in[0], out[0], space, nullptr, added_ ? in[2] : nullptr);
    else
      product_->run(in[0], in[1], out[0], space);
    if (kind_ == ConvKind::forward && (f_.bias || f_.relu))
      launch_bias(backend_, dtype_, out[0], wide(dtype_), f_.bias ? in[2] : nullptr, pixels(),
                  f_.filters, f_.relu);
    if (kind_ == ConvKind::weight_gradient && f_.bias)
      launch_bias_gradient(backend_, dtype_, in[1], out[1], pixels(), f_.filters, false,
                           space + sums_at_);
  }

 private:
  Dim pixels() const { return f_.batch * f_.window.h.out * f_.window.w.out; }
  CudaBackend& backend_;
  Conv2dForm f_;
  Dtype dtype_;
  ConvKind kind_;
  Bytes aligned_;  // all operands
  bool added_ = false;
  std::unique_ptr<Product> product_;
  Bytes sums_at_ = 0;
};

// Of a kernel of one tap with a stride: a product of the pixels that are read, added to those.
class ConvStridedAdd final : public Kernel {
 public:
  ConvStridedAdd(const PrepareCall& call, const Conv2dForm& form)
      : backend_(backend_of(call)), f_(form), out_(call.out[0]), aligned_(call.alignment()) {
    footprint = static_cast<Bytes>(sizeof *this);
    library = "cublasLt";
  }
  bool prepare() {
    const Dim pixels = f_.batch * f_.window.h.out * f_.window.w.out;
    product_ = Product::prepare(backend_, {.m = pixels,
                                           .n = f_.channels,
                                           .k = f_.filters,
                                           .transpose_b = true,
                                           .in = out_.dtype,
                                           .out = out_.dtype,
                                           .alignment = product_alignment(aligned_)});
    if (!product_) return false;
    scratch_at_ = align_up(pixels * f_.channels * size_of(out_.dtype), CudaBackend::kAlignment);
    workspace_bytes = scratch_at_ + product_->workspace_bytes();
    key = product_->key() + "+strided";
    return true;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    if (in[2] != out[0])
      cuda_check(cudaMemcpyAsync(out[0], in[2], static_cast<size_t>(out_.bytes()),
                                 cudaMemcpyDeviceToDevice, backend_.stream()),
                 "conv2d_input_gradient_add");
    product_->run(in[1], in[0], space, space + scratch_at_);
    launch_add_strided(backend_, f_, out_.dtype, space, out[0]);
    check_launch(key.c_str());
  }

 private:
  CudaBackend& backend_;
  Conv2dForm f_;
  Meta out_;
  Bytes aligned_;  // all operands
  std::unique_ptr<Product> product_;
  Bytes scratch_at_ = 0;
};

// The gradient in workspace, then a pass that adds: what no product does.
class ConvGradientAdd final : public Kernel {
 public:
  ConvGradientAdd(std::unique_ptr<Kernel> gradient, std::unique_ptr<Kernel> add, Bytes bytes)
      : gradient_(std::move(gradient)),
        add_(std::move(add)),
        inner_at_(align_up(bytes, CudaBackend::kAlignment)) {
    workspace_bytes = inner_at_ + std::max(gradient_->workspace_bytes, add_->workspace_bytes);
    key = gradient_->key;
    library = gradient_->library;
    footprint = static_cast<Bytes>(sizeof *this) + gradient_->footprint + add_->footprint;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* inner = static_cast<char*>(workspace) + inner_at_;
    void* const made[] = {workspace};
    gradient_->run(in, made, inner);
    void* const terms[] = {workspace, in[2]};
    add_->run(terms, out, inner);
  }

 private:
  std::unique_ptr<Kernel> gradient_, add_;
  Bytes inner_at_;
};

bool is_plain(const WindowAxis& a) {
  return a.kernel == 1 && a.stride == 1 && a.before == 0 && a.after == 0;
}
bool is_one_tap(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return f.groups == 1 && h.kernel * w.kernel == 1 && h.before + w.before == 0;
}
bool is_product(const Conv2dForm& f) {
  return f.groups == 1 && is_plain(f.window.h) && is_plain(f.window.w);
}

std::unique_ptr<Kernel> conv_kernel(const PrepareCall& call, const Conv2dForm& f, ConvKind kind) {
  const Dtype dtype = call.in[0].dtype;
  if (dtype == Dtype::float64 || f.batch == 0 || call.out[0].elements() == 0) return nullptr;
  CudaBackend& backend = backend_of(call);
  if (is_product(f)) {
    auto kernel = std::make_unique<ConvProduct>(call, f, kind);
    if (kernel->prepare(call.out[0].dtype, false)) return kernel;
  }
  std::optional<ConvPack> pack;
  if (is_narrow(dtype) && kind != ConvKind::input_gradient) pack = conv_pack(f);
  const bool biased = kind == ConvKind::forward && is_narrow(dtype) && f.bias && !f.relu;
  // Gradients of kernels too in what the images are: the library's fast plans give nothing wider.
  auto attempt = [&](const std::optional<ConvPack>& packed,
                     bool with_bias) -> std::unique_ptr<Kernel> {
    auto kernel = std::make_unique<ConvDnn>(backend, f, dtype, kind, call);
    return kernel->prepare(packed, with_bias) ? std::move(kernel) : nullptr;
  };
  std::unique_ptr<Kernel> kernel;
  if (biased) kernel = attempt(pack, true);
  if (!kernel && pack) kernel = attempt(pack, false);
  return kernel ? std::move(kernel) : attempt(std::nullopt, false);
}

}  // namespace

std::unique_ptr<Kernel> conv2d_dnn(const PrepareCall& call) {
  return conv_kernel(call, conv2d_form(call.in, call.attrs), ConvKind::forward);
}
std::unique_ptr<Kernel> conv2d_input_gradient_dnn(const PrepareCall& call) {
  return conv_kernel(call, conv2d_input_gradient_form(call.in, call.attrs),
                     ConvKind::input_gradient);
}
std::unique_ptr<Kernel> conv2d_input_gradient_add(const PrepareCall& call) {
  const Metas in{call.in[0], call.in[1]}, terms{call.out[0], call.in[2]};
  const Conv2dForm f = conv2d_input_gradient_form(in, call.attrs);
  if (is_product(f) && call.out[0].elements() > 0) {
    auto kernel = std::make_unique<ConvProduct>(call, f, ConvKind::input_gradient);
    if (kernel->prepare(call.out[0].dtype, true)) return kernel;
  }
  if (is_one_tap(f) && call.out[0].elements() > 0 && f.window.h.out * f.window.w.out > 0) {
    auto kernel = std::make_unique<ConvStridedAdd>(call, f);
    if (kernel->prepare()) return kernel;
  }
  const Bytes aligned = call.alignment();
  const Alignments slices{{aligned, aligned}, {aligned}};
  const PrepareCall plain{call.backend, in, call.out, call.attrs, &slices};
  auto gradient = conv2d_input_gradient_dnn(plain);
  if (!gradient) gradient = conv2d_input_gradient(plain);
  auto add = pointwise({call.backend, terms, call.out, {}, &slices}, TileOp::add);
  if (!gradient || !add) return nullptr;
  return std::make_unique<ConvGradientAdd>(std::move(gradient), std::move(add),
                                           call.out[0].bytes());
}
std::unique_ptr<Kernel> conv2d_weight_gradient_dnn(const PrepareCall& call) {
  return conv_kernel(call, conv2d_weight_gradient_form(call.in, call.attrs),
                     ConvKind::weight_gradient);
}

}  // namespace pl::cuda

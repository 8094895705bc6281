// CUDA kernels by cuDNN, through cudnn-frontend: convolutions and attention. Plans are chosen by
// the library's heuristic when a kernel is prepared, deterministic ones unless the backend is not,
// and the library's own workspace is the kernel's.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <array>
#include <unordered_map>

#include "backend/cuda/cuda_libraries.h"
#include "op/attention.h"
#include "op/conv2d.h"
#include "op/cuda/conv_pack.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // what the library's loader reads
}

namespace pl::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using TensorOf = std::shared_ptr<fe::graph::Tensor_attributes>;
using Dims = std::vector<int64_t>;

constexpr int64_t kMostWorkspace = int64_t{1} << 30;

fe::DataType_t type_of(Dtype dtype) {
  if (dtype == Dtype::bfloat16) return fe::DataType_t::BFLOAT16;
  return dtype == Dtype::float16 ? fe::DataType_t::HALF : fe::DataType_t::FLOAT;
}

cudnnHandle_t handle_of(CudaBackend& backend) {
  auto handle = static_cast<cudnnHandle_t>(backend.dnn());
  fe::cudnn_dlhandle = backend.libraries().dnn();
  return handle;
}

// One operation of the library. Tensors are known by numbers from 1 on.
class DnnGraph {
 public:
  explicit DnnGraph(CudaBackend& backend) : backend_(backend), handle_(handle_of(backend)) {
    graph_.set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  Graph& graph() { return graph_; }

  TensorOf input(int64_t id, Dtype dtype, Dims dims, Dims strides) {
    pointers_[id] = nullptr;
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name("t" + std::to_string(id))
                             .set_uid(id)
                             .set_dim(std::move(dims))
                             .set_stride(std::move(strides))
                             .set_data_type(type_of(dtype)));
  }
  void output(const TensorOf& tensor, int64_t id, Dtype dtype, Dims dims, Dims strides) {
    pointers_[id] = nullptr;
    tensor->set_output(true)
        .set_uid(id)
        .set_dim(std::move(dims))
        .set_stride(std::move(strides))
        .set_data_type(type_of(dtype));
  }

  // False: the library has no plan for it with so much workspace. `exact`: float32 as it is.
  bool build(bool exact, int64_t most_workspace) {
    if (graph_.validate().is_bad() || graph_.build_operation_graph(handle_).is_bad() ||
        graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad())
      return false;
    graph_.deselect_workspace_greater_than(most_workspace);
    std::vector<fe::NumericalNote_t> notes;
    if (backend_.deterministic()) notes.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
    if (exact) {
      notes.push_back(fe::NumericalNote_t::TENSOR_CORE);
      notes.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
      notes.push_back(fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION);
      notes.push_back(fe::NumericalNote_t::FFT);
      notes.push_back(fe::NumericalNote_t::WINOGRAD_TILE_13x13);
    }
    if (!notes.empty()) graph_.deselect_numeric_notes(notes);
    if (graph_.check_support().is_bad()) return false;
    if (graph_.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE).is_bad()) return false;
    int64_t bytes = 0;
    if (graph_.get_workspace_size(bytes).is_bad()) return false;
    workspace_ = bytes;
    return true;
  }

  Bytes workspace() const { return workspace_; }
  std::string name() const {
    std::string text;
    if (graph_.get_plan_name(text).is_bad()) return "dnn";
    return text;
  }
  void set(int64_t id, const void* pointer) { pointers_[id] = const_cast<void*>(pointer); }
  void run(void* workspace) {
    auto status = graph_.execute(handle_, pointers_, workspace);
    if (status.is_bad()) throw BackendError("[cudnn] " + status.get_message());
  }

 private:
  CudaBackend& backend_;
  cudnnHandle_t handle_;
  Graph graph_;
  std::unordered_map<int64_t, void*> pointers_;
  Bytes workspace_ = 0;
};

bool is_narrow(Dtype dtype) { return dtype == Dtype::bfloat16 || dtype == Dtype::float16; }

// ---- attention

// Strides of (B, H, T, d) where a position has `stride` elements.
Dims head_strides(Dim positions, Dim stride, Dim size) {
  return {positions * stride, size, stride, 1};
}

enum : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// The samples may be taken in pieces, one behind the other, for less workspace.
class AttentionDnn final : public Kernel {
 public:
  AttentionDnn(CudaBackend& backend, const AttentionForm& form, Dtype dtype, bool gradient,
               Dim pieces, bool apart)
      : backend_(backend),
        f_(form),
        dtype_(dtype),
        gradient_(gradient),
        pieces_(pieces),
        apart_(apart),
        graph_(backend) {
    f_.batch = form.batch / pieces;
    footprint = static_cast<Bytes>(sizeof *this) + 64 * kKiB;
    library = "cudnn";
  }

  bool prepare(bool deterministic) {
    const Dims query{f_.batch, f_.heads, f_.queries, f_.size};
    const Dims keys{f_.batch, f_.heads, f_.keys, f_.size};
    const Dims q_strides = head_strides(f_.queries, f_.q_stride, f_.size);
    const Dims kv_strides = head_strides(f_.keys, f_.kv_stride, f_.size);
    const Dims out_strides = head_strides(f_.queries, f_.heads * f_.size, f_.size);
    const Dims lse{f_.batch, f_.heads, f_.queries, 1};
    const Dims lse_strides{f_.heads * f_.queries, f_.queries, 1, 1};
    const TensorOf q = graph_.input(kQ, dtype_, query, q_strides);
    const TensorOf k = graph_.input(kK, dtype_, keys, kv_strides);
    const TensorOf v = graph_.input(kV, dtype_, keys, kv_strides);
    const auto scale = static_cast<float>(f_.scale);
    if (!gradient_) {
      auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
      options.set_attn_scale(scale).set_causal_mask(f_.causal);
      auto [out, stats] = graph_.graph().sdpa(q, k, v, options);
      graph_.output(out, kOut, dtype_, query, out_strides);
      graph_.output(stats, kLse, Dtype::float32, lse, lse_strides);
    } else {
      const TensorOf out = graph_.input(kOut, dtype_, query, out_strides);
      const TensorOf dout = graph_.input(kDout, dtype_, query, out_strides);
      const TensorOf stats = graph_.input(kLse, Dtype::float32, lse, lse_strides);
      auto options = fe::graph::SDPA_backward_attributes().set_name("attention_gradient");
      options.set_attn_scale(scale).set_causal_mask(f_.causal);
      options.set_deterministic_algorithm(deterministic);
      auto [dq, dk, dv] = graph_.graph().sdpa_backward(q, k, v, out, dout, stats, options);
      graph_.output(dq, kDq, dtype_, query, q_strides);
      graph_.output(dk, kDk, dtype_, keys, kv_strides);
      graph_.output(dv, kDv, dtype_, keys, kv_strides);
    }
    if (!graph_.build(false, int64_t{1} << 40)) return false;
    workspace_bytes = graph_.workspace();
    if (gradient_ && !apart_) {
      // The library reads q, k and v while it writes: gradients in their place go through here.
      placed_at_ = align_up(workspace_bytes, CudaBackend::kAlignment);
      placed_bytes_ = f_.batch * f_.queries * f_.q_stride * size_of(dtype_);
      workspace_bytes = placed_at_ + placed_bytes_;
    }
    key = graph_.name();
    return true;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const Dim result = f_.batch * f_.queries * f_.heads * f_.size * size_of(dtype_);
    const Dim lse = f_.batch * f_.heads * f_.queries * static_cast<Dim>(sizeof(float));
    const int first = f_.packed ? 1 : 3;
    for (Dim piece = 0; piece < pieces_; ++piece) {
      auto set = [&](int64_t id, void* operand, Dim bytes) {
        graph_.set(id, static_cast<char*>(operand) + piece * bytes);
      };
      set_heads(kQ, in, piece);
      set(kOut, gradient_ ? in[first] : out[0], result);
      set(kLse, gradient_ ? in[first + 1] : out[1], lse);
      const bool placed = gradient_ && in[0] == out[0];
      char* const space = static_cast<char*>(workspace) + placed_at_;
      if (gradient_) {
        set(kDout, in[first + 2], result);
        set_heads(kDq, out, piece);
        if (placed) set_placed(space);
      }
      graph_.run(workspace);
      if (placed)
        cuda_check(cudaMemcpyAsync(static_cast<char*>(out[0]) + piece * placed_bytes_, space,
                                   static_cast<size_t>(placed_bytes_), cudaMemcpyDeviceToDevice,
                                   backend_.stream()),
                   "attention gradient");
    }
  }

 private:
  // What lies in the first gradient: dq, or of packed operands all three.
  void set_placed(char* space) {
    const Dim width = f_.heads * f_.size * size_of(dtype_);
    for (int i = 0; i < (f_.packed ? 3 : 1); ++i) graph_.set(kDq + i, space + i * width);
  }
  // q, k and v, or their gradients, which may lie in one tensor.
  void set_heads(int64_t first, void* const* operands, Dim piece) {
    const Dim size = size_of(dtype_), width = f_.heads * f_.size * size;
    for (int i = 0; i < 3; ++i) {
      const Dim row = (i == 0 ? f_.queries * f_.q_stride : f_.keys * f_.kv_stride) * size;
      char* base = static_cast<char*>(operands[f_.packed ? 0 : i]);
      graph_.set(first + i, base + piece * f_.batch * row + (f_.packed ? i * width : 0));
    }
  }

  CudaBackend& backend_;
  AttentionForm f_;
  Dtype dtype_;
  bool gradient_;
  Dim pieces_;
  bool apart_;  // gradients never lie where q, k and v do
  Bytes placed_at_ = 0, placed_bytes_ = 0;
  DnnGraph graph_;
};

// Deterministic gradients take 25 MiB a sample of 12 heads and 1,024 positions.
constexpr Bytes kMostAttentionWorkspace = 512 * kMiB;

std::unique_ptr<Kernel> attention_kernel(const PrepareCall& call, bool gradient) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  const Dtype dtype = call.in[0].dtype;
  const size_t operands = f.packed ? 1 : 3;
  if (!is_narrow(dtype) || f.batch * f.heads * f.queries * f.keys == 0 || f.size % 8 != 0 ||
      f.size > 128 || (gradient && call.in.size() > operands + 3))
    return nullptr;
  CudaBackend& backend = backend_of(call);
  const bool apart = call.attrs.integer("apart", 0) != 0;
  auto kernel = std::make_unique<AttentionDnn>(backend, f, dtype, gradient, 1, apart);
  if (!kernel->prepare(backend.deterministic())) return nullptr;
  if (kernel->workspace_bytes <= kMostAttentionWorkspace) return kernel;
  Dim pieces = 2;
  while (pieces < f.batch &&
         (f.batch % pieces != 0 || kernel->workspace_bytes / pieces > kMostAttentionWorkspace))
    ++pieces;
  kernel = std::make_unique<AttentionDnn>(backend, f, dtype, gradient, pieces, apart);
  return kernel->prepare(backend.deterministic()) ? std::move(kernel) : nullptr;
}

// ---- convolutions

enum class ConvKind : uint8_t { forward, input_gradient, weight_gradient };
enum : int64_t { kX = 1, kW, kY, kBias };

Dims image_strides(Dim height, Dim width, Dim channels) {
  return {height * width * channels, 1, width * channels, channels};
}

// Kernels are (taps, C, O) here and (O, taps, C) there: turned around in workspace. Few channels
// are packed there as well.
class ConvDnn final : public Kernel {
 public:
  ConvDnn(CudaBackend& backend, const Conv2dForm& form, Dtype dtype, ConvKind kind,
          const Metas& out)
      : backend_(backend), f_(form), dtype_(dtype), kind_(kind), graph_(backend) {
    if (kind == ConvKind::weight_gradient) out_ = out[0].dtype;
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
    auto with = [&](auto options) {
      return options.set_pre_padding({h.before, w.before})
          .set_post_padding({h.after, w.after})
          .set_stride({h.stride, w.stride})
          .set_dilation({h.dilation, w.dilation});
    };
    Graph& graph = graph_.graph();
    if (kind_ == ConvKind::forward) {
      const TensorOf image = graph_.input(kX, dtype_, x, x_strides);
      const TensorOf filter = graph_.input(kW, dtype_, kernel, w_strides);
      TensorOf made = graph.conv_fprop(image, filter, with(fe::graph::Conv_fprop_attributes()));
      if (biased_) {
        made->set_dim(y).set_stride(y_strides);
        const TensorOf bias = graph_.input(kBias, wide(dtype_), {1, f_.filters, 1, 1},
                                           {f_.filters, 1, f_.filters, f_.filters});
        made = graph.pointwise(
            made, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
      }
      graph_.output(made, kY, dtype_, y, y_strides);
    } else if (kind_ == ConvKind::input_gradient) {
      const TensorOf dy = graph_.input(kY, dtype_, y, y_strides);
      const TensorOf filter = graph_.input(kW, dtype_, kernel, w_strides);
      graph_.output(graph.conv_dgrad(dy, filter, with(fe::graph::Conv_dgrad_attributes())), kX,
                    dtype_, x, x_strides);
    } else {
      const TensorOf dy = graph_.input(kY, dtype_, y, y_strides);
      const TensorOf image = graph_.input(kX, dtype_, x, x_strides);
      graph_.output(graph.conv_wgrad(dy, image, with(fe::graph::Conv_wgrad_attributes())), kW,
                    dtype_, kernel, w_strides);
    }
  }

  CudaBackend& backend_;
  Conv2dForm f_;
  Dtype dtype_, out_ = Dtype::float32;
  ConvKind kind_;
  DnnGraph graph_;
  std::optional<ConvPack> pack_;
  bool biased_ = false;
  Dim rows_ = 0;
  Bytes images_at_ = 0, scratch_at_ = 0, sums_at_ = 0;
};

// A kernel of one tap is a matrix product of pixels.
class ConvProduct final : public Kernel {
 public:
  ConvProduct(CudaBackend& backend, const Conv2dForm& form, Dtype dtype, ConvKind kind)
      : backend_(backend), f_(form), dtype_(dtype), kind_(kind) {
    footprint = static_cast<Bytes>(sizeof *this);
    library = "cublasLt";
  }
  // `added`: to the images' gradient, the third operand.
  bool prepare(Dtype out, bool added) {
    added_ = added;
    ProductForm p{.in = dtype_, .out = out};
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
  bool added_ = false;
  std::unique_ptr<Product> product_;
  Bytes sums_at_ = 0;
};

// Of a kernel of one tap with a stride: a product of the pixels that are read, added to those.
class ConvStridedAdd final : public Kernel {
 public:
  ConvStridedAdd(CudaBackend& backend, const Conv2dForm& form, const Meta& out)
      : backend_(backend), f_(form), out_(out) {
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
                                           .out = out_.dtype});
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
    auto kernel = std::make_unique<ConvProduct>(backend, f, dtype, kind);
    if (kernel->prepare(call.out[0].dtype, false)) return kernel;
  }
  std::optional<ConvPack> pack;
  if (is_narrow(dtype) && kind != ConvKind::input_gradient) pack = conv_pack(f);
  const bool biased = kind == ConvKind::forward && is_narrow(dtype) && f.bias && !f.relu;
  // Gradients of kernels too in what the images are: the library's fast plans give nothing wider.
  auto attempt = [&](const std::optional<ConvPack>& packed,
                     bool with_bias) -> std::unique_ptr<Kernel> {
    auto kernel = std::make_unique<ConvDnn>(backend, f, dtype, kind, call.out);
    return kernel->prepare(packed, with_bias) ? std::move(kernel) : nullptr;
  };
  std::unique_ptr<Kernel> kernel;
  if (biased) kernel = attempt(pack, true);
  if (!kernel && pack) kernel = attempt(pack, false);
  return kernel ? std::move(kernel) : attempt(std::nullopt, false);
}

}  // namespace

std::unique_ptr<Kernel> attention_dnn(const PrepareCall& call) {
  return attention_kernel(call, false);
}
std::unique_ptr<Kernel> attention_gradient_dnn(const PrepareCall& call) {
  return attention_kernel(call, true);
}
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
    auto kernel = std::make_unique<ConvProduct>(backend_of(call), f, call.in[0].dtype,
                                                ConvKind::input_gradient);
    if (kernel->prepare(call.out[0].dtype, true)) return kernel;
  }
  if (is_one_tap(f) && call.out[0].elements() > 0 && f.window.h.out * f.window.w.out > 0) {
    auto kernel = std::make_unique<ConvStridedAdd>(backend_of(call), f, call.out[0]);
    if (kernel->prepare()) return kernel;
  }
  const PrepareCall plain{call.backend, in, call.out, call.attrs};
  auto gradient = conv2d_input_gradient_dnn(plain);
  if (!gradient) gradient = conv2d_input_gradient(plain);
  auto add = pointwise({call.backend, terms, call.out, {}}, TileOp::add);
  if (!gradient || !add) return nullptr;
  return std::make_unique<ConvGradientAdd>(std::move(gradient), std::move(add),
                                           call.out[0].bytes());
}
std::unique_ptr<Kernel> conv2d_weight_gradient_dnn(const PrepareCall& call) {
  return conv_kernel(call, conv2d_weight_gradient_form(call.in, call.attrs),
                     ConvKind::weight_gradient);
}

}  // namespace pl::cuda

// CUDA kernels of attention, by cuDNN.
#include <numeric>

#include "backend/cuda/cuda_libraries.h"
#include "op/attention.h"
#include "op/cuda/dnn_graph.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

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

  // `aligned`: all operands.
  bool prepare(bool deterministic, Bytes aligned) {
    const Dims query{f_.batch, f_.heads, f_.queries, f_.size};
    const Dims keys{f_.batch, f_.heads, f_.keys, f_.size};
    const Dims q_strides = head_strides(f_.queries, f_.q_stride, f_.size);
    const Dims kv_strides = head_strides(f_.keys, f_.kv_stride, f_.size);
    const Dims out_strides = head_strides(f_.queries, f_.heads * f_.size, f_.size);
    const Dims lse{f_.batch, f_.heads, f_.queries, 1};
    const Dims lse_strides{f_.heads * f_.queries, f_.queries, 1, 1};
    const DnnHeads heads{.q = {kQ, dtype_, query, q_strides},
                         .k = {kK, dtype_, keys, kv_strides},
                         .v = {kV, dtype_, keys, kv_strides},
                         .out = {kOut, dtype_, query, out_strides},
                         .lse = {kLse, Dtype::float32, lse, lse_strides, lse_alignment(aligned)},
                         .scale = static_cast<float>(f_.scale),
                         .causal = f_.causal};
    if (gradient_)
      graph_.attention_gradient(heads, {kDout, dtype_, query, out_strides},
                                {kDq, dtype_, query, q_strides}, {kDk, dtype_, keys, kv_strides},
                                {kDv, dtype_, keys, kv_strides}, deterministic);
    else
      graph_.attention(heads);
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
  // Of a piece: a number for each head's position. All else has rows of 16 bytes.
  int64_t lse_alignment(Bytes aligned) const {
    const Dim bytes = f_.batch * f_.heads * f_.queries * static_cast<Dim>(sizeof(float));
    return pieces_ > 1 ? std::gcd(bytes, aligned) : aligned;
  }
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

constexpr Bytes kMostAttentionWorkspace = 512 * kMiB;

// Deterministic gradients sum dq of every 128 keys apart: 25 MiB a sample of 12 heads and 1,024
// positions of 64. Known beforehand, since the library says it of plans that took it a tenth of a
// second alone.
Bytes expected_workspace(const AttentionForm& f, bool summed_apart) {
  constexpr Dim kKeys = 128;
  const Dim sums = f.batch * f.heads * f.queries * f.size * static_cast<Dim>(sizeof(float));
  return summed_apart ? sums * ((f.keys + kKeys - 1) / kKeys) : sums;
}

// The fewest pieces, from `least` on, for which so much workspace is little enough.
Dim pieces_for(Dim batch, Bytes workspace, Dim least) {
  Dim pieces = least;
  while (pieces < batch && (batch % pieces != 0 || workspace / pieces > kMostAttentionWorkspace))
    ++pieces;
  return pieces;
}

std::unique_ptr<Kernel> attention_kernel(const PrepareCall& call, bool gradient) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  const Dtype dtype = call.in[0].dtype;
  const size_t operands = f.packed ? 1 : 3;
  if (!is_narrow(dtype) || f.batch * f.heads * f.queries * f.keys == 0 || f.size % 8 != 0 ||
      f.size > 128 || (gradient && call.in.size() > operands + 3))
    return nullptr;
  CudaBackend& backend = backend_of(call);
  const bool apart = call.attrs.integer("apart", 0) != 0;
  const bool deterministic = backend.deterministic();
  Dim pieces = gradient ? pieces_for(f.batch, expected_workspace(f, deterministic), 1) : Dim{1};
  auto kernel = std::make_unique<AttentionDnn>(backend, f, dtype, gradient, pieces, apart);
  if (!kernel->prepare(deterministic, call.alignment())) return nullptr;
  if (kernel->workspace_bytes <= kMostAttentionWorkspace || pieces == f.batch) return kernel;
  pieces = pieces_for(f.batch, kernel->workspace_bytes * pieces, pieces + 1);
  kernel = std::make_unique<AttentionDnn>(backend, f, dtype, gradient, pieces, apart);
  return kernel->prepare(deterministic, call.alignment()) ? std::move(kernel) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> attention_dnn(const PrepareCall& call) {
  return attention_kernel(call, false);
}
std::unique_ptr<Kernel> attention_gradient_dnn(const PrepareCall& call) {
  return attention_kernel(call, true);
}

}  // namespace pl::cuda

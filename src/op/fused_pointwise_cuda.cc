// CUDA kernels of fused_pointwise, update and sum_squares: compiled for the program at hand.
#include "backend/cuda/cuda_libraries.h"
#include "op/broadcast.h"
#include "op/cuda/kernel-inl.h"
#include "op/cuda/kernels.h"
#include "op/cuda/runtime_code.h"
#include "op/cuda/tile_source.h"
#include "op/fused_pointwise.h"
#include "op/update.h"

namespace pl::cuda {
namespace {

class TileKernel final : public Kernel {
 public:
  TileKernel(CudaBackend& backend, const TileSource& source, size_t operands)
      : backend_(backend),
        operands_(operands),
        outputs_(source.outputs.size()),
        sums_(source.sums),
        total_(source.shape.elements()) {
    footprint = static_cast<Bytes>(sizeof *this);
    if (total_ == 0 && !sums_) return;
    code_ = compile(backend, source.text());
    run_ = code_->function("run");
    const int64_t wanted = (source.chunks() + 255) / 256;
    blocks_ = static_cast<unsigned>(
        std::clamp<int64_t>(wanted, 1, backend.multiprocessors() * int64_t{sums_ ? 4 : 16}));
    if (sums_) {
      finish_ = code_->function("finish");
      workspace_bytes = blocks_ * outputs_ * size_of(source.dtype);
    }
    key = "w" + std::to_string(source.width());
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    if (!code_) return;
    TileArgs args{};
    for (size_t i = 0; i < operands_; ++i) args.in[i] = in[i];
    for (size_t o = 0; o < outputs_; ++o) args.out[o] = out[o];
    args.parts = workspace;
    void* list[] = {&args, &blocks_};
    cuda_check(cudaLaunchKernel(run_, dim3(blocks_), dim3(256), list, 0, backend_.stream()),
               key.c_str());
    if (sums_)
      cuda_check(cudaLaunchKernel(finish_, dim3(static_cast<unsigned>(outputs_)), dim3(256), list,
                                  0, backend_.stream()),
                 key.c_str());
  }

 private:
  CudaBackend& backend_;
  size_t operands_, outputs_;
  bool sums_;
  int64_t total_;
  unsigned blocks_ = 1;
  std::shared_ptr<RuntimeCode> code_;
  const void *run_ = nullptr, *finish_ = nullptr;
};

// How the operands that are tensors lie, and the results.
void align(TileSource& source, const PrepareCall& call) {
  if (!call.slices) return;
  for (size_t i = 0; i < source.tensors.size(); ++i) source.aligned.push_back(call.in_alignment(i));
  for (size_t o = 0; o < call.out.size(); ++o)
    source.out_aligned = std::min(source.out_aligned, call.out_alignment(o));
}

std::unique_ptr<Kernel> step_kernel(const PrepareCall& call, bool sums) {
  const bool guarded = !sums && call.attrs.integer("guarded", 0) != 0;
  const size_t tensors = call.in.size() - (guarded ? 2 : 1);
  const auto program = step_program_of(call.attrs, static_cast<int>(tensors));
  if (!program || (call.in[0].dtype != Dtype::float32 && call.in[0].dtype != Dtype::float64))
    return nullptr;
  TileSource source{
      .tile = program->tile,
      .scalars = program->scalars,
      .uses = program->uses,
      .outputs = program->outputs,
      .tensors = Metas(call.in.begin(), call.in.begin() + static_cast<std::ptrdiff_t>(tensors)),
      .shape = {},
      .dtype = call.in[0].dtype,
      .params = static_cast<int>(call.in.size()) - 1,
      .flag = guarded ? static_cast<int>(call.in.size()) - 2 : -1,
      .sums = sums,
      .starts = {}};
  for (const Meta& meta : source.tensors) {
    const Shape before = source.shape;
    broadcast_shapes(before, meta.shape, &source.shape);
  }
  align(source, call);
  return std::make_unique<TileKernel>(backend_of(call), source, call.in.size());
}

}  // namespace

std::unique_ptr<Kernel> fused_pointwise(const PrepareCall& call) {
  const auto program =
      parse_tile_program(call.attrs.text("program"), static_cast<int>(call.in.size()));
  if (!program) return nullptr;
  TileSource source{.tile = *program,
                    .scalars = {},
                    .uses = {},
                    .outputs = {program->operands + static_cast<int64_t>(program->code.size()) - 1},
                    .tensors = call.in,
                    .shape = call.out[0].shape,
                    .dtype = call.out[0].dtype,
                    .starts = {}};
  if (call.attrs.has("starts") && call.out[0].elements() > 0) {
    source.starts = call.attrs.list("starts");
    source.height = call.attrs.integer("height");
  }
  align(source, call);
  return std::make_unique<TileKernel>(backend_of(call), source, call.in.size());
}

std::unique_ptr<Kernel> update(const PrepareCall& call) { return step_kernel(call, false); }
std::unique_ptr<Kernel> sum_squares(const PrepareCall& call) { return step_kernel(call, true); }

}  // namespace pl::cuda

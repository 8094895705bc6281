#include <algorithm>
#include <span>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_libraries.h"
#include "op/cuda/product.h"

namespace pl::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr size_t kMostWorkspace = 32 << 20;  // what NVIDIA recommends for Hopper

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return CUDA_R_64F;
    case Dtype::bfloat16:
      return CUDA_R_16BF;
    case Dtype::float16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

}  // namespace

struct Product::State {
  CudaBackend& backend;
  const BlasLtApi& api;
  ProductForm form;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  Bytes workspace = 0;
  std::string key = {};

  ~State() {
    if (desc) api.matmul_desc_destroy(desc);
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) api.layout_destroy(layout);
  }

  // A row-major matrix is its transpose in the library's column-major order.
  cublasLtMatrixLayout_t layout(Dtype dtype, Dim rows, Dim columns, Dim step) const {
    cublasLtMatrixLayout_t made = nullptr;
    cublas_check(api.layout_create(&made, type_of(dtype), static_cast<uint64_t>(columns),
                                   static_cast<uint64_t>(rows), columns),
                 "layout");
    if (form.batch > 1) {
      const auto count = static_cast<int32_t>(form.batch);
      api.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
      const int64_t offset = step;
      api.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset);
    }
    return made;
  }

  void describe() {
    const bool wide = form.in == Dtype::float64;
    // Full float32: no TF32.
    cublas_check(api.matmul_desc_create(&desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        wide ? CUDA_R_64F : CUDA_R_32F),
                 "product");
    // The library multiplies transposes: C^T = op(B)^T x op(A)^T, so B is its first operand.
    const cublasOperation_t first = form.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = form.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    set_epilogue();
    const ProductForm& f = form;
    a = layout(f.in, f.transpose_a ? f.k : f.m, f.transpose_a ? f.m : f.k, f.a_step);
    b = layout(f.in, f.transpose_b ? f.n : f.k, f.transpose_b ? f.k : f.n, f.b_step);
    c = layout(f.out, f.m, f.n, f.c_step);
  }

  void set_epilogue() {
    if (!form.bias && !form.gelu_slope) return;
    const cublasLtEpilogue_t epilogue =
        form.gelu_slope ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_BIAS;
    api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (form.bias) {
      const cudaDataType_t type = type_of(form.out);
      api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
      set_bias(aligned());
    }
    if (form.gelu_slope) {
      const int64_t step = form.n;
      api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &step, sizeof step);
      set_other(aligned());
    }
  }
  // A pointer that the heuristic looks at for its alignment alone.
  const void* aligned() const { return reinterpret_cast<const void*>(form.alignment); }
  void set_bias(const void* bias) const {
    api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  }
  void set_other(const void* other) const {
    api.matmul_desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &other, sizeof other);
  }

  bool choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    cublas_check(api.preference_create(&preference), "preference");
    api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kMostWorkspace,
                       sizeof kMostWorkspace);
    const auto alignment = static_cast<uint32_t>(form.alignment);
    for (auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      api.preference_set(preference, which, &alignment, sizeof alignment);
    cublasLtMatmulHeuristicResult_t found[kCandidates];
    int count = 0;
    const cublasStatus_t status =
        api.heuristic(static_cast<cublasLtHandle_t>(backend.blas_lt()), desc, b, a, c, c,
                      preference, kCandidates, found, &count);
    api.preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return false;
    const int chosen = best_of({found, static_cast<size_t>(count)});
    if (chosen < 0) return false;
    algorithm = found[chosen].algo;
    workspace = static_cast<Bytes>(found[chosen].workspaceSize);
    name();
    return true;
  }

  // The heuristic's first, but for what was faster on an H200, by a tenth and for all shapes tried:
  // - results of many tiles: kernels of 128 x 128 or 128 x 160 with custom option 1 or 3, and of
  //   very many (a head's logits) those of 168 or 176 x 128 with option 2;
  // - sums that are added to: tiles that fill the device once, rather than a cut of k that is
  //   joined behind it;
  // - with gelu's slope: those whose blocks fill the device once.
  int best_of(std::span<const cublasLtMatmulHeuristicResult_t> found) const {
    int first = -1, once = -1;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
      const int at = static_cast<int>(i);
      if (first < 0) first = at;
      const float waves = found[i].wavesCount;
      if (form.gelu_slope && waves > 0.99f && waves <= 1) return at;
      if (backend.compute_capability() != 90 ||
          config(found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1)
        continue;
      if (once < 0 && waves > 0.85f && waves <= 1) once = at;
      if (waves >= 4 && fast_tiles(found[i].algo, waves)) return at;
    }
    const bool cut = first >= 0 && config(found[static_cast<size_t>(first)].algo,
                                          CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
    return form.onto && cut && once >= 0 ? once : first;
  }
  bool fast_tiles(const cublasLtMatmulAlgo_t& algo, float waves) const {
    const uint32_t tile = config(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
    const uint32_t option = config(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
    if (tile == CUBLASLT_MATMUL_TILE_128x128 || tile == CUBLASLT_MATMUL_TILE_128x160)
      return option == 1 || option == 3;
    return waves >= 40 && option == 2 &&
           (tile == CUBLASLT_MATMUL_TILE_168x128 || tile == CUBLASLT_MATMUL_TILE_176x128);
  }
  uint32_t config(const cublasLtMatmulAlgo_t& algo,
                  cublasLtMatmulAlgoConfigAttributes_t which) const {
    uint32_t value = 0;
    size_t written = 0;
    api.algo_get(&algo, which, &value, sizeof value, &written);
    return value;
  }

  // What decides the bits: the algorithm with its parameters.
  void name() {
    auto number = [&](cublasLtMatmulAlgoConfigAttributes_t which) {
      return std::to_string(config(algorithm, which));
    };
    key = "lt" + number(CUBLASLT_ALGO_CONFIG_ID) + "t" + number(CUBLASLT_ALGO_CONFIG_TILE_ID) +
          "s" + number(CUBLASLT_ALGO_CONFIG_STAGES_ID) + "o" +
          number(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) + "k" +
          number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) + "r" +
          number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  }
};

Product::Product(std::unique_ptr<State> state) : state_(std::move(state)) {}
Product::~Product() = default;
Bytes Product::workspace_bytes() const { return state_->workspace; }
const std::string& Product::key() const { return state_->key; }

std::unique_ptr<Product> Product::prepare(Backend& backend, const ProductForm& form) {
  auto& device = static_cast<CudaBackend&>(backend);
  auto state = std::unique_ptr<State>(
      new State{.backend = device, .api = device.libraries().blas_lt(), .form = form});
  state->describe();
  if (!state->choose()) return nullptr;
  return std::unique_ptr<Product>(new Product(std::move(state)));
}

void Product::run(const void* a, const void* b, void* c, void* workspace, const void* bias,
                  const void* other) {
  State& s = *state_;
  if (s.form.bias) s.set_bias(bias);
  if (s.form.gelu_slope) s.set_other(other);
  const bool adds = s.form.onto || s.form.added;
  const void* from = s.form.added ? other : c;
  const float one = 1, beta = adds ? 1.0f : 0.0f;
  const double wide_one = 1, wide_beta = adds ? 1.0 : 0.0;
  const bool wide = s.form.in == Dtype::float64;
  const void* alpha_at = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta_at = wide ? static_cast<const void*>(&wide_beta) : &beta;
  cublas_check(s.api.matmul(static_cast<cublasLtHandle_t>(s.backend.blas_lt()), s.desc, alpha_at, b,
                            s.b, a, s.a, beta_at, from, s.c, c, s.c, &s.algorithm, workspace,
                            static_cast<size_t>(s.workspace), s.backend.stream()),
               "product");
}

}  // namespace pl::cuda

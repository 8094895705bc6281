// Biases added to rows, and their gradients: what stands beside matrix products.
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/product.h"
#include "op/cuda/score_rows.h"

namespace pl::cuda {
namespace {

template <class T, class B>
__global__ void add_bias_rows(T* c, const B* bias, int64_t total, int64_t n, bool relu) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    W value = widen(c[i]);
    if (bias) value += static_cast<W>(widen(bias[i % n]));
    c[i] = static_cast<T>(relu && value <= W(0) ? W(0) : value);
  }
}
// The same for packs; n is a multiple of a pack's size.
template <class T, class B>
__global__ void add_bias_packs(T* c, const B* bias, int64_t packs, int64_t n, bool relu) {
  using W = Wide<T>;
  constexpr int kSize = Pack<T>::kSize;
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    W value[kSize];
    load_wide<kSize>(c + i * kSize, value);
    const int64_t column = i * kSize % n;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      if (bias) value[j] += static_cast<W>(widen(bias[column + j]));
      if (relu && value[j] <= W(0)) value[j] = W(0);
    }
    store_narrow<kSize>(c + i * kSize, value);
  }
}

template <class W>
struct BiasEnd {
  W* to;
  bool onto;
  __device__ void operator()(int64_t, int64_t column, const double (&sums)[1]) const {
    to[column] = static_cast<W>(onto ? static_cast<double>(to[column]) + sums[0] : sums[0]);
  }
};

template <class F>
void with_real(Dtype dtype, F body) {
  if (dtype == Dtype::bfloat16) return body.template operator()<Bf16>();
  if (dtype == Dtype::float16) return body.template operator()<Half>();
  if (dtype == Dtype::float64) return body.template operator()<double>();
  body.template operator()<float>();
}

}  // namespace

void launch_bias(Backend& backend, Dtype dtype, void* c, Dtype bias_dtype, const void* bias,
                 Dim rows, Dim n, bool relu) {
  auto& device = static_cast<CudaBackend&>(backend);
  const Launch launch{device.stream(), device.multiprocessors()};
  if (rows * n == 0) return;
  with_real(dtype, [&]<class T>() {
    auto go = [&]<class B>() {
      T* to = static_cast<T*>(c);
      const B* from = static_cast<const B*>(bias);
      constexpr int kSize = Pack<T>::kSize;
      if (n % kSize == 0)
        add_bias_packs<T, B><<<launch.blocks(rows * n / kSize, 256), 256, 0, launch.stream>>>(
            to, from, rows * n / kSize, n, relu);
      else
        add_bias_rows<T, B>
            <<<launch.blocks(rows * n, 256), 256, 0, launch.stream>>>(to, from, rows * n, n, relu);
    };
    if (!bias || bias_dtype == dtype) return go.template operator()<T>();
    if constexpr (sizeof(T) == 2) {
      go.template operator()<float>();
    } else if constexpr (sizeof(T) == 4) {  // a sum in float32 of 16-bit operands
      if (bias_dtype == Dtype::bfloat16) return go.template operator()<Bf16>();
      go.template operator()<Half>();
    }
  });
  check_launch("bias");
}

Bytes bias_gradient_bytes(const Backend& backend, Dtype dtype, Dim rows, Dim n) {
  const int processors = static_cast<const CudaBackend&>(backend).multiprocessors();
  const int pack = 16 / static_cast<int>(size_of(dtype));
  return column_plan(1, rows, n, pack, processors, 1).bytes(1, size_of(wide(dtype)));
}

void launch_bias_gradient(Backend& backend, Dtype dtype, const void* dy, void* to, Dim rows, Dim n,
                          bool onto, void* workspace) {
  auto& device = static_cast<CudaBackend&>(backend);
  const Launch launch{device.stream(), device.multiprocessors()};
  with_real(dtype, [&]<class T>() {
    using W = Wide<T>;
    const ColumnPlan plan = column_plan(1, rows, n, Pack<T>::kSize, launch.processors, 1);
    sum_columns<1, Pack<T>::kSize, W>(launch, plan, ColumnTerm<T>{static_cast<const T*>(dy), n},
                                      BiasEnd<W>{static_cast<W*>(to), onto}, workspace);
  });
  check_launch("bias gradient");
}

}  // namespace pl::cuda

// CUDA kernels of products of integers, which wrap: square tiles in shared memory.
#include "op/batch_matmul.h"
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/matmul.h"

namespace pl::cuda {
namespace {

constexpr int kIntegerTile = 32, kIntegerRows = 8;  // rows of threads in a block

// `products` products of op(a) and op(b), of which b has `inner` matrices.
struct IntegerForm {
  int64_t m, n, k, products, inner;
  bool transpose_a, transpose_b;
};

// T is unsigned; bias may be null.
template <class T>
__global__ void integer_products(IntegerForm f, const T* a, const T* b, const T* bias, bool relu,
                                 T* c) {
  constexpr int kTile = kIntegerTile, kSums = kIntegerTile / kIntegerRows;
  __shared__ T left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int64_t a_row = f.transpose_a ? 1 : f.k, a_column = f.transpose_a ? f.m : 1;
  const int64_t b_row = f.transpose_b ? 1 : f.n, b_column = f.transpose_b ? f.k : 1;
  const int64_t across = (f.n + kTile - 1) / kTile, down = (f.m + kTile - 1) / kTile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int64_t t = blockIdx.x; t < across * down * f.products; t += gridDim.x) {
    const int64_t product = t / (across * down), j = t % across * kTile + x;
    const int64_t top = t / across % down * kTile;
    const T* from_a = a + product * f.m * f.k;
    const T* from_b = b + product % f.inner * f.k * f.n;
    T sum[kSums] = {};
    for (int64_t first = 0; first < f.k; first += kTile) {
      __syncthreads();
      for (int r = y; r < kTile; r += kIntegerRows) {
        const int64_t i = top + r, column = first + x, row = first + r;
        left[r][x] = i < f.m && column < f.k ? from_a[i * a_row + column * a_column] : T(0);
        right[r][x] = row < f.k && j < f.n ? from_b[row * b_row + j * b_column] : T(0);
      }
      __syncthreads();
      for (int i = 0; i < kTile; ++i) {
        const T factor = right[i][x];
#pragma unroll
        for (int s = 0; s < kSums; ++s) sum[s] += left[y + s * kIntegerRows][i] * factor;
      }
    }
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      const int64_t i = top + y + s * kIntegerRows;
      if (i >= f.m || j >= f.n) continue;
      const T value = sum[s] + (bias ? bias[j] : T(0));
      const bool negative = value >> (8 * sizeof(T) - 1) != 0;
      c[product * f.m * f.n + i * f.n + j] = relu && negative ? T(0) : value;
    }
  }
}

std::unique_ptr<Kernel> integer_kernel(const PrepareCall& call, const IntegerForm& f, bool bias,
                                       bool relu) {
  return dispatch_size(call.out[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      const int64_t results = f.products * f.m * f.n;
      if (results > 0)
        integer_products<T><<<launch.blocks(results, kIntegerTile * kIntegerTile),
                              dim3(kIntegerTile, kIntegerRows), 0, launch.stream>>>(
            f, input<T>(in, 0), input<T>(in, 1), input<T>(in, bias ? 2 : -1), relu,
            output<T>(out, 0));
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> integer_matmul(const PrepareCall& call) {
  const MatmulForm f = matmul_form(call.in, call.attrs);
  return integer_kernel(call, {f.m, f.n, f.k, 1, 1, f.transpose_a, f.transpose_b}, f.bias, f.relu);
}

std::unique_ptr<Kernel> integer_batch_matmul(const PrepareCall& call) {
  const BatchMatmulForm f = batch_matmul_form(call.in, call.attrs);
  return integer_kernel(
      call, {f.m, f.n, f.k, f.outer * f.inner, f.inner, f.transpose_a, f.transpose_b}, false, false);
}

}  // namespace pl::cuda

// One operation of cuDNN, described without the library's headers, which take a minute to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "tensor/dtype.h"

namespace pl::cuda {

using Dims = std::vector<int64_t>;

// A tensor of the operation, known by a number from 1 on.
struct DnnTensor {
  int64_t id;
  Dtype dtype;
  Dims dims, strides;
  int64_t alignment = 16;  // of its address
};

struct DnnHeads {
  DnnTensor q, k, v, out, lse;  // (B, H, T, d); lse (B, H, T, 1)
  float scale;
  bool causal;
};
struct DnnWindow {
  Dims before, after, stride, dilation;  // of height and width
};
enum class ConvKind : uint8_t { forward, input_gradient, weight_gradient };

class DnnGraph {
 public:
  explicit DnnGraph(CudaBackend& backend);
  ~DnnGraph();

  // One of these, once.
  void attention(const DnnHeads& heads);
  void attention_gradient(const DnnHeads& heads, const DnnTensor& dout, const DnnTensor& dq,
                          const DnnTensor& dk, const DnnTensor& dv, bool deterministic);
  // `bias`: added to y, or null.
  void convolution(ConvKind kind, const DnnTensor& x, const DnnTensor& w, const DnnTensor& y,
                   const DnnWindow& window, const DnnTensor* bias);

  // False: the library has no plan for it with so much workspace. `exact`: float32 as it is.
  bool build(bool exact, int64_t most_workspace);
  Bytes workspace() const;
  std::string name() const;

  void set(int64_t id, const void* pointer);
  void run(void* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline bool is_narrow(Dtype dtype) { return dtype == Dtype::bfloat16 || dtype == Dtype::float16; }

}  // namespace pl::cuda

// How fast the largest kernels of training steps are, beside what reading and writing their bytes
// once would take. Not a test of anything: run with --gtest_also_run_disabled_tests.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "backend/cuda/cuda_backend.h"
#include "op/adam.h"
#include "op/attention.h"
#include "op/batch_norm.h"
#include "op/batch_norm_gradient.h"
#include "op/conv2d.h"
#include "op/embedding.h"
#include "op/fused_pointwise.h"
#include "op/gelu.h"
#include "op/layer_norm.h"
#include "op/linear_cross_entropy.h"
#include "op/matmul.h"
#include "op/max_pool.h"
#include "op/reduce.h"
#include "op/softmax_cross_entropy.h"
#include "op/step_params.h"

namespace pl::test::speed_cuda_test {
namespace {

struct Timed {
  const char* name;
  const Op& op;
  Metas in;
  Attrs attrs;
};

Bytes bytes_of(const Metas& metas) {
  Bytes total = 0;
  for (const Meta& meta : metas) total += align_up(meta.bytes(), 256);
  return total;
}

// Milliseconds of one run, the mean of several behind a few that do not count.
float time_of(CudaBackend& backend, Kernel& kernel, const Metas& in, const Metas& out) {
  auto memory = backend.reserve(bytes_of(in) + bytes_of(out) + kernel.workspace_bytes + 256);
  char* next = memory->data();
  std::vector<void*> ins, outs;
  for (const Metas* metas : {&in, &out})
    for (const Meta& meta : *metas) {
      (metas == &in ? ins : outs).push_back(next);
      // 0.01 in bfloat16, small positive numbers in float32, indices inside every table.
      const int fill = meta.dtype == Dtype::int32 ? 0 : 0x3c;
      if (meta.bytes() > 0) cudaMemset(next, fill, static_cast<size_t>(meta.bytes()));
      if (meta == step_params_meta()) {
        const StepParams params{.step = 3, .seed = 7, .learning_rate = 0.001};
        cudaMemcpy(next, &params, sizeof params, cudaMemcpyHostToDevice);
      }
      next += align_up(meta.bytes(), 256);
    }
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  constexpr int kRuns = 10;
  for (int i = 0; i < 3; ++i) kernel.run(ins.data(), outs.data(), next);
  cudaEventRecord(begin, backend.stream());
  for (int i = 0; i < kRuns; ++i) kernel.run(ins.data(), outs.data(), next);
  cudaEventRecord(end, backend.stream());
  cudaEventSynchronize(end);
  float time = 0;
  cudaEventElapsedTime(&time, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return time / kRuns;
}

void report(CudaBackend& backend, const Timed& timed) {
  const Metas out = timed.op.infer(timed.in, timed.attrs);
  auto kernel = prepare(timed.op, {backend, timed.in, out, timed.attrs});
  const float time = time_of(backend, *kernel, timed.in, out);
  const double bytes = static_cast<double>(bytes_of(timed.in) + bytes_of(out));
  const Cost cost = timed.op.cost(timed.in, out, timed.attrs);
  std::printf(
      "%-34s %8.3f ms  read+write %8.3f ms at 4.2 TB/s  %7.1f TFLOP/s  workspace %7.1f "
      "MiB  %s\n",
      timed.name, static_cast<double>(time), bytes / 4.2e9,
      cost.flops / static_cast<double>(time) / 1e9,
      static_cast<double>(kernel->workspace_bytes) / 1048576, kernel->key.c_str());
  EXPECT_GT(time, 0);
}

Meta narrow(std::vector<Dim> dims) { return {Dtype::bfloat16, Shape(std::move(dims))}; }
Meta full(std::vector<Dim> dims) { return {Dtype::float32, Shape(std::move(dims))}; }
Meta whole(std::vector<Dim> dims) { return {Dtype::int32, Shape(std::move(dims))}; }

class DISABLED_CudaSpeed : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
    backend = std::make_unique<CudaBackend>(0, CudaOptions{.deterministic = true});
  }
  std::unique_ptr<CudaBackend> backend;
};

// A step of GPT-2 124M over 64 x 1,024 tokens in bfloat16.
TEST_F(DISABLED_CudaSpeed, Gpt2) {
  const Dim rows = 65536;
  const Meta x = narrow({rows, 768}), wide = narrow({rows, 3072}), row = full({rows});
  const std::string gelu = "cast 0;cast 1;add 2 3;gelu 4 1";
  for (const Timed& timed : std::vector<Timed>{
           {"layer_norm", kLayerNorm, {x, full({768}), full({768})}, {{"epsilon", 1e-5}}},
           {"layer_norm_gradient", kLayerNormGradient, {x, full({768}), row, row, x}, {}},
           {"layer_norm_parameter_gradient", kLayerNormParameterGradient, {x, row, row, x}, {}},
           {"gelu", kGelu, {wide}, {{"approximate", int64_t{1}}}},
           {"gelu_gradient", kGeluGradient, {wide, wide}, {{"approximate", int64_t{1}}}},
           {"fused add",
            kFusedPointwise,
            {x, x},
            {{"program", std::string("add 0 1")}, {"dtype", std::string("bfloat16")}}},
           {"bias gradient 3072",
            kReduceSum,
            {wide},
            {{"axes", std::vector<int64_t>{0}}, {"dtype", std::string("float32")}}},
           {"adam 768x3072",
            kAdam,
            {full({768, 3072}), full({768, 3072}), full({768, 3072}), full({768, 3072}),
             step_params_meta()},
            {}},
           {"adam 50304x768",
            kAdam,
            {full({50304, 768}), full({50304, 768}), full({50304, 768}), full({50304, 768}),
             step_params_meta()},
            {}},
           {"embedding", kEmbedding, {narrow({50304, 768}), whole({64, 1024})}, {}},
           {"embedding_gradient",
            kEmbeddingGradient,
            {whole({64, 1024}), narrow({64, 1024, 768})},
            {{"depth", int64_t{50304}}, {"dtype", std::string("float32")}}},
           {"matmul fc1 + bias", kMatmul, {x, narrow({768, 3072}), narrow({3072})}, {}},
           {"matmul dx", kMatmul, {wide, narrow({768, 3072})}, {{"transpose_b", int64_t{1}}}},
           {"matmul dw float32",
            kMatmul,
            {x, wide},
            {{"transpose_a", int64_t{1}}, {"dtype", std::string("float32")}}},
           {"attention",
            kAttention,
            {narrow({64, 1024, 2304})},
            {{"heads", int64_t{12}}, {"causal", int64_t{1}}, {"packed", int64_t{1}}}},
           {"attention_gradient",
            kAttentionGradient,
            {narrow({64, 1024, 2304}), narrow({64, 1024, 768}), full({64, 12, 1024}),
             narrow({64, 1024, 768})},
            {{"heads", int64_t{12}}, {"causal", int64_t{1}}, {"packed", int64_t{1}}}},
           {"linear_cross_entropy",
            kLinearCrossEntropy,
            {x, narrow({50304, 768}), whole({rows}), row},
            {{"transpose_b", int64_t{1}}, {"gradients", int64_t{1}}}},
           {"sparse_softmax_cross_entropy",
            kSparseSoftmaxCrossEntropy,
            {narrow({8192, 50304}), whole({8192})},
            {}},
       })
    report(*backend, timed);
}

// ResNet-50, batch 512.
TEST_F(DISABLED_CudaSpeed, Resnet50) {
  const Meta a = narrow({512, 56, 56, 64}), b = narrow({512, 56, 56, 256});
  const Meta c = narrow({512, 14, 14, 256}), stem = narrow({512, 112, 112, 64});
  const Meta image = narrow({512, 224, 224, 3});
  const Attrs same{{"padding", std::string("same")}}, norm{{"epsilon", 1e-5}};
  Attrs relu = norm;
  relu.set("activation", std::string("relu"));
  const Meta ch = full({256});
  auto with = [](Attrs attrs, const char* name, std::vector<int64_t> list) {
    attrs.set(name, std::move(list));
    return attrs;
  };
  Attrs seven{{"padding", std::string("explicit")},
              {"pads", std::vector<int64_t>{3, 3, 3, 3}},
              {"strides", std::vector<int64_t>{2, 2}}};
  Attrs gradient_seven = seven;
  gradient_seven.set("kernel_shape", std::vector<int64_t>{7, 7, 3, 64});
  for (const Timed& timed : std::vector<Timed>{
           {"conv 3x3 64 56", kConv2d, {a, narrow({3, 3, 64, 64})}, same},
           {"conv 1x1 64-256 56", kConv2d, {a, narrow({1, 1, 64, 256})}, {}},
           {"conv 1x1 256-64 56", kConv2d, {b, narrow({1, 1, 256, 64})}, {}},
           {"conv 3x3 256 14", kConv2d, {c, narrow({3, 3, 256, 256})}, same},
           {"conv 7x7 s2 stem", kConv2d, {image, narrow({7, 7, 3, 64})}, seven},
           {"dgrad 3x3 64 56",
            kConv2dInputGradient,
            {narrow({3, 3, 64, 64}), a},
            with(same, "input_shape", {512, 56, 56, 64})},
           {"dgrad 1x1 64-256",
            kConv2dInputGradient,
            {narrow({1, 1, 64, 256}), b},
            with({}, "input_shape", {512, 56, 56, 64})},
           {"wgrad 3x3 64 56",
            kConv2dWeightGradient,
            {a, a},
            with(same, "kernel_shape", {3, 3, 64, 64})},
           {"wgrad 1x1 64-256",
            kConv2dWeightGradient,
            {a, b},
            with({}, "kernel_shape", {1, 1, 64, 256})},
           {"wgrad 7x7 stem", kConv2dWeightGradient, {image, stem}, gradient_seven},
           {"batch_moments 256", kBatchMoments, {b}, {}},
           {"batch_norm_apply relu", kBatchNormApply, {b, ch, ch, ch, ch}, relu},
           {"batch_norm_relu_gradient", kBatchNormReluGradient, {b, ch, ch, ch, b, ch}, norm},
           {"batch_norm_add_relu_gradient", kBatchNormAddReluGradient, {b, ch, ch, ch, b, b}, norm},
           {"max_pool 3x3 s2",
            kMaxPool,
            {stem},
            {{"pool_size", std::vector<int64_t>{3, 3}}, {"strides", std::vector<int64_t>{2, 2}}}},
       })
    report(*backend, timed);
}

}  // namespace
}  // namespace pl::test::speed_cuda_test

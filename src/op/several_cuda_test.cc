// Launches that stand for several: updates of many weights at once, and ops that add what they sum
// to running sums. The bits are those of one call after the other.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backend/several_kernel.h"
#include "op/accumulate.h"
#include "op/adam.h"
#include "op/cast.h"
#include "op/layer_norm_gradients.h"
#include "op/reduce.h"
#include "op/sgd.h"
#include "op/step_params.h"
#include "tests/cuda/device_test.h"

namespace pl::test::several_cuda_test {
namespace {

class CudaSeveral : public CudaTest {
 protected:
  using Bits = std::vector<unsigned char>;

  // Tensors on the device, in a reservation of its own.
  struct Held {
    std::unique_ptr<DeviceMemory> memory;
    std::vector<void*> at;
  };
  // Numbers below 1 in size, positive where `positive`; step parameters as they are. The same ones
  // for a seed.
  Held make(const Metas& metas, unsigned seed, bool positive = false) {
    Bytes total = 256;
    for (const Meta& meta : metas) total += align_up(meta.bytes(), 256);
    Held held{backend->reserve(total), {}};
    char* next = held.memory->data();
    std::mt19937 random(seed);
    for (const Meta& meta : metas) {
      Bits bytes(static_cast<size_t>(meta.bytes()));
      for (int64_t i = 0; i < meta.elements() && meta.dtype != Dtype::uint8; ++i) {
        const float value = std::uniform_real_distribution<float>(positive ? 0 : -1, 1)(random);
        uint32_t word;
        std::memcpy(&word, &value, sizeof word);
        // The upper half of a float32 is a bfloat16, and some number in float16.
        if (size_of(meta.dtype) == 2) word = meta.dtype == Dtype::float16 ? word >> 19 : word >> 16;
        std::memcpy(bytes.data() + i * size_of(meta.dtype), &word,
                    static_cast<size_t>(size_of(meta.dtype)));
      }
      const StepParams params{.step = 3, .seed = 7, .learning_rate = 0.001};
      if (meta == step_params_meta()) std::memcpy(bytes.data(), &params, sizeof params);
      backend->copy_in(next, bytes.data(), meta.bytes());
      backend->synchronize();
      held.at.push_back(next);
      next += align_up(meta.bytes(), 256);
    }
    return held;
  }
  Bits bits(const void* at, const Meta& meta) {
    Bits result(static_cast<size_t>(meta.bytes()));
    backend->copy_out(result.data(), at, meta.bytes());
    backend->synchronize();
    return result;
  }
  std::unique_ptr<Kernel> kernel_of(const Op& op, const Metas& in, const Attrs& attrs) {
    const Metas out = op.infer(in, attrs);
    return prepare(op, {*backend, in, out, attrs});
  }
  void run(Kernel& kernel, std::vector<void*> in, std::vector<void*> out) {
    const auto space = backend->reserve(kernel.workspace_bytes + 256);
    kernel.run(in.data(), out.data(), space->data());
    backend->synchronize();
  }

  // An op that adds to sums, beside the op and `accumulate`.
  void check_adding(const Op& adding, const Op& op, Metas operands, const Attrs& attrs,
                    size_t first) {
    SCOPED_TRACE(std::string(adding.name) + " " + operands[0].text());
    const Metas out = op.infer(operands, attrs),
                sums(out.begin() + static_cast<long>(first), out.end());
    Metas all = sums;
    all.insert(all.end(), operands.begin(), operands.end());
    const Held in = make(all, 1, true), apart = make(out, 2), joined = make(out, 3);
    const std::vector<void*> own(in.at.begin() + static_cast<long>(sums.size()), in.at.end());
    run(*kernel_of(op, operands, attrs), own, apart.at);
    const auto add = kernel_of(adding, all, attrs);
    run(*add, in.at, joined.at);
    for (size_t s = 0; s < sums.size(); ++s)
      run(*kernel_of(kAccumulate, {sums[s], sums[s]}, {}), {in.at[s], apart.at[first + s]},
          {apart.at[first + s]});
    for (size_t o = 0; o < out.size(); ++o)
      EXPECT_EQ(bits(joined.at[o], out[o]), bits(apart.at[o], out[o])) << "output " << o;
    // In the sums' own places.
    std::vector<void*> places = joined.at;
    for (size_t s = 0; s < sums.size(); ++s) places[first + s] = in.at[s];
    run(*add, in.at, places);
    for (size_t s = 0; s < sums.size(); ++s)
      EXPECT_EQ(bits(in.at[s], sums[s]), bits(apart.at[first + s], sums[s])) << "sum " << s;
  }

  void check_norms(Dtype dtype);
  // Calls of one op with operands of these sizes: one after the other, and all at once.
  void check_several(const Op& op, std::vector<Dim> sizes, const Attrs& attrs,
                     const std::function<Metas(Dim)>& operands) {
    SCOPED_TRACE(op.name);
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<Held> in, apart, joined;
    std::vector<Metas> outs;
    const Held params = make({step_params_meta()}, 0);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Metas metas = operands(sizes[i]);
      kernels.push_back(kernel_of(op, metas, attrs));
      outs.push_back(op.infer(metas, attrs));
      in.push_back(make(metas, static_cast<unsigned>(i), true));
      if (metas.back() == step_params_meta()) in.back().at.back() = params.at[0];
      apart.push_back(make(outs.back(), 1));
      joined.push_back(make(outs.back(), 2));
    }
    std::vector<KernelCall> calls;
    auto* first = dynamic_cast<SeveralKernel*>(kernels[0].get());
    ASSERT_TRUE(first);
    for (size_t i = 0; i < sizes.size(); ++i) {
      kernels[i]->run(in[i].at.data(), apart[i].at.data(), nullptr);
      ASSERT_TRUE(first->joins(*kernels[i]));
      calls.push_back({kernels[i].get(), in[i].at.data(), joined[i].at.data()});
    }
    first->run_several(calls);
    for (size_t i = 0; i < sizes.size(); ++i)
      for (size_t o = 0; o < outs[i].size(); ++o)
        EXPECT_EQ(bits(joined[i].at[o], outs[i][o]), bits(apart[i].at[o], outs[i][o]))
            << "call " << i << ", output " << o;
  }
  void check_updates(const Op& op, int tensors, const Attrs& attrs);
};

TEST_F(CudaSeveral, SumsOverAxesAreAdded) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16, Dtype::float64})
    for (const auto& [shape, axes] : std::vector<std::pair<Shape, std::vector<int64_t>>>{
             {{3, 5}, {0, 1}},
             {{2, 1000, 768}, {0, 1}},  // columns
             {{1, 129, 2304}, {0, 1}},  // fewer rows than are asked for together
             {{3, 333, 77}, {0, 1}},    // columns one by one
             {{16, 64, 768}, {0}},      // a thread for each
             {{40000}, {0}},            // a run in pieces
             {{300, 700}, {1}},         // runs
         }) {
      Attrs attrs{{"axes", axes}};
      if (wide(dtype) != dtype) attrs.set("dtype", std::string(name_of(wide(dtype))));
      check_adding(kReduceSumAccumulate, kReduceSum, {{dtype, shape}}, attrs, 0);
    }
}

// Rows: fewer than warps, and several for each.
void CudaSeveral::check_norms(Dtype dtype) {
  for (const auto& [width, rows] :
       {std::pair{64, 37}, std::pair{768, 1}, std::pair{768, 5000}, std::pair{1024, 5000},
        std::pair{1600, 37}, std::pair{1601, 3}}) {
    const Meta x{dtype, Shape{rows, width}}, moment{wide(dtype), Shape{rows}};
    const Meta gamma{wide(dtype), Shape{width}};
    const Attrs attrs{{"sum", int64_t{1}}};
    check_adding(kLayerNormGradientsAccumulate, kLayerNormGradients, {x, gamma, moment, moment, x},
                 attrs, 1);
    check_adding(kLayerNormGradientsAccumulate, kLayerNormGradients,
                 {x, gamma, moment, moment, x, x}, attrs, 1);
  }
}
TEST_F(CudaSeveral, GradientsOfNormsAreAdded) { check_norms(Dtype::float32); }
TEST_F(CudaSeveral, GradientsOfNormsAreAddedBfloat16) { check_norms(Dtype::bfloat16); }
TEST_F(CudaSeveral, GradientsOfNormsAreAddedFloat16) { check_norms(Dtype::float16); }

// More than a launch takes; of one element, of none.
std::vector<Dim> many_sizes() {
  std::vector<Dim> many(196, 768);
  many[7] = 100003;
  many[100] = 1;
  many[150] = 0;
  return many;
}

void CudaSeveral::check_updates(const Op& op, int tensors, const Attrs& attrs) {
  for (const Dtype dtype : {Dtype::float32, Dtype::float64})
    for (const std::vector<Dim>& sizes :
         {std::vector<Dim>{768, 3, 0, 8193, 4096, 50000}, std::vector<Dim>(9, 5), many_sizes()})
      check_several(op, sizes, attrs, [&](Dim size) {
        Metas metas(static_cast<size_t>(tensors), Meta{dtype, Shape{size}});
        metas.push_back(step_params_meta());
        return metas;
      });
}
TEST_F(CudaSeveral, AdamsUpdatesRunAsOneLaunch) { check_updates(kAdam, 4, {}); }
TEST_F(CudaSeveral, SgdsUpdatesRunAsOneLaunch) {
  check_updates(kSgd, 2, {});
  check_updates(kSgdMomentum, 3, {{"momentum", 0.9}});
}
TEST_F(CudaSeveral, CastsRunAsOneLaunch) {
  for (const auto& [from, to] :
       {std::pair{Dtype::float32, Dtype::bfloat16}, std::pair{Dtype::bfloat16, Dtype::float32},
        std::pair{Dtype::float32, Dtype::float16}})
    check_several(kCast, many_sizes(), {{"dtype", std::string(name_of(to))}}, [&](Dim size) {
      return Metas{{from, Shape{size}}};
    });
}

TEST_F(CudaSeveral, OtherConstantsDoNotJoin) {
  const Meta w{Dtype::float32, Shape{8}};
  const Metas in{w, w, w, w, step_params_meta()};
  const auto a = kernel_of(kAdam, in, {{"beta_1", 0.9}}),
             b = kernel_of(kAdam, in, {{"beta_1", 0.8}});
  const auto cast = kernel_of(kCast, {w}, {{"dtype", std::string("bfloat16")}});
  const auto* kernel = dynamic_cast<SeveralKernel*>(a.get());
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(kernel->joins(*a));
  EXPECT_FALSE(kernel->joins(*b));
  EXPECT_FALSE(kernel->joins(*cast));
}

}  // namespace
}  // namespace pl::test::several_cuda_test

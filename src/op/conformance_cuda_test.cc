// Every op of the catalogue on the device, on each of its samples: against the CPU's float64
// reference in float32 and in 16-bit floats, in place, with fenced buffers, twice with equal bits.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "op/device_kernels.h"
#include "op/sample.h"
#include "op/update.h"
#include "tests/cuda/fenced_device.h"
#include "tests/guarded_call.h"
#include "tests/narrow_sample.h"

namespace pl::test::conformance_cuda_test {
namespace {

// Relative to the largest element. float32: the sample's own, but no less than what the functions
// of the device's library are off by. 16-bit floats hold 8 and 11 digits; sums are float32.
constexpr double kLeastTolerance = 4e-6;
constexpr double kBfloat16Tolerance = 1e-2, kFloat16Tolerance = 2e-3;

struct Case {
  const Op* op;
  Sample sample;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Op* op : catalogue())
    for (Sample& sample : op->samples())
      if (!sample.benchmark) cases.push_back({op, std::move(sample)});
  return cases;
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.op->name) + "_" + info.param.sample.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
void PrintTo(const Case& c, std::ostream* out) { *out << c.op->name << "/" << c.sample.name; }

std::vector<const char*> variants_of(const Op& op) {
  std::vector<const char*> names;
  for (const DeviceKernel& entry : cuda_kernels().list)
    if (entry.op == &op) names.push_back(entry.variant.name);
  return names;
}

class CudaConformance : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { set_up({}); }
  static void TearDownTestSuite() {
    buffers_.reset();
    device_.reset();
    host_.reset();
  }
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  }

  const Op& op() const { return *GetParam().op; }
  const Sample& sample() const { return GetParam().sample; }

  GuardedResult run(Kernel& kernel, const Tensors& in, const Metas& out, unsigned char poison,
                    std::span<const InOut> in_place = {}) {
    return run_on_device(*buffers_, kernel, in, out, poison, in_place);
  }
  void check_float32();
  void check_all(const Tensors& in, const Attrs& attrs, const Tensors& exact_in,
                 const Attrs& exact_attrs, double tolerance, bool any_dtype);
  void check_values(const GuardedResult& got, const Metas& metas, const GuardedResult& exact,
                    const Metas& exact_metas, double tolerance);
  void check_in_place(Kernel& kernel, const Tensors& in, const Metas& out,
                      const GuardedResult& apart);
  void check_narrow(Dtype dtype, double tolerance);
  void check_slices(const Tensors& in, const Attrs& attrs, double tolerance);

  static void set_up(CudaOptions options) {
    if (cuda_device_count() == 0) return;
    host_ = std::make_unique<CpuBackend>(2);
    device_ = std::make_unique<CudaBackend>(0, options);
    buffers_ = std::make_unique<FencedDevice>(*device_);
  }

  static std::unique_ptr<CpuBackend> host_;
  static std::unique_ptr<CudaBackend> device_;
  static std::unique_ptr<FencedDevice> buffers_;
};
std::unique_ptr<CpuBackend> CudaConformance::host_;
std::unique_ptr<CudaBackend> CudaConformance::device_;
std::unique_ptr<FencedDevice> CudaConformance::buffers_;

double largest(const std::vector<unsigned char>& bytes, const Meta& meta) {
  double result = 0;
  for (int64_t i = 0; i < meta.elements(); ++i) {
    const double value = std::fabs(number_at(bytes, meta.dtype, static_cast<size_t>(i)));
    if (std::isfinite(value)) result = std::max(result, value);
  }
  return result;
}
bool close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= tolerance;
}

void CudaConformance::check_values(const GuardedResult& got, const Metas& metas,
                                   const GuardedResult& exact, const Metas& exact_metas,
                                   double tolerance) {
  for (size_t o = 0; o < metas.size(); ++o) {
    const double most =
        is_floating(metas[o].dtype) ? tolerance * largest(exact.out[o], exact_metas[o]) : 0;
    for (int64_t i = 0; i < metas[o].elements(); ++i) {
      const double value = number_at(got.out[o], metas[o].dtype, static_cast<size_t>(i));
      const double wanted = number_at(exact.out[o], exact_metas[o].dtype, static_cast<size_t>(i));
      ASSERT_TRUE(close(value, wanted, most))
          << "output " << o << "[" << i << "]: " << value << ", float64 " << wanted;
    }
  }
}

void CudaConformance::check_in_place(Kernel& kernel, const Tensors& in, const Metas& out,
                                     const GuardedResult& apart) {
  std::vector<InOut> pairs(op().in_place.begin(), op().in_place.end());
  const auto versions = next_versions(op(), out.size());
  pairs.insert(pairs.end(), versions.begin(), versions.end());
  std::vector<std::vector<InOut>> trials;
  for (const InOut& pair : pairs)
    if (static_cast<size_t>(pair.in) < in.size() &&
        in[static_cast<size_t>(pair.in)].meta().bytes() ==
            out[static_cast<size_t>(pair.out)].bytes())
      trials.push_back({pair});
  if (versions.size() > 1) trials.emplace_back(versions.begin(), versions.end());
  for (const auto& trial : trials) {
    const GuardedResult placed = run(kernel, in, out, kNanPoison, trial);
    ASSERT_EQ(placed.fault, "");
    if (!device_->deterministic()) continue;
    ASSERT_TRUE(placed.out == apart.out)
        << "output " << trial[0].out << " in place of input " << trial[0].in << " gave other bits";
  }
}

// All kernels of the op that take the call. `required`: one must.
void CudaConformance::check_all(const Tensors& in, const Attrs& attrs, const Tensors& exact_in,
                                const Attrs& exact_attrs, double tolerance, bool required) {
  Metas in_metas, exact_metas;
  for (const Tensor& tensor : in) in_metas.push_back(tensor.meta());
  for (const Tensor& tensor : exact_in) exact_metas.push_back(tensor.meta());
  const Metas out = op().infer(in_metas, attrs), exact_out = op().infer(exact_metas, exact_attrs);
  const char* reference = nullptr;
  for (const Variant& variant : op().variants)
    if (variant.device == DeviceKind::cpu) reference = variant.name;
  auto host = prepare(op(), {*host_, exact_metas, exact_out, exact_attrs}, reference);
  ASSERT_TRUE(host);
  const GuardedResult exact = run_guarded(*host, exact_in, exact_out, kNanPoison);
  bool any = false;
  for (const char* variant : variants_of(op())) {
    SCOPED_TRACE(std::string("variant ") + variant);
    auto kernel = prepare(op(), {*device_, in_metas, out, attrs}, variant);
    if (!kernel) continue;
    any = true;
    const GuardedResult first = run(*kernel, in, out, kNanPoison);
    const GuardedResult again = run(*kernel, in, out, kOtherPoison);
    ASSERT_EQ(first.fault, "");
    ASSERT_EQ(again.fault, "");
    check_values(first, out, exact, exact_out, tolerance);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(first.out == again.out || !device_->deterministic())
        << "a second run, with other bytes in outputs and workspace, gave other bits";
    check_values(again, out, exact, exact_out, tolerance);
    if (HasFatalFailure()) return;
    check_in_place(*kernel, in, out, first);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(any || !required) << "no kernel takes it";
}

// Ops that take no 16-bit floats: what they work on is float32 in every policy.
bool refuses_narrow(const Op& op) { return !op.next_version.empty() || &op == &kSumSquares; }

void CudaConformance::check_narrow(Dtype dtype, double tolerance) {
  SCOPED_TRACE(name_of(dtype));
  const NarrowInputs inputs = narrow_inputs(op(), sample(), dtype);
  Attrs attrs = sample_attrs(sample(), dtype), exact = sample_attrs(sample(), Dtype::float64);
  bool differs = !(attrs == sample_attrs(sample(), Dtype::float32));
  Metas metas;
  for (size_t i = 0; i < inputs.in.size(); ++i) {
    metas.push_back(inputs.in[i].meta());
    differs = differs || metas[i] != sample_metas(sample(), Dtype::float32)[i];
  }
  if (!differs || refuses_narrow(op())) return;
  check_all(inputs.in, attrs, inputs.exact, exact, tolerance, true);
  // Ops that offer it may give their sums in float32.
  const Attrs own = attrs;
  attrs.set("dtype", std::string(name_of(Dtype::float32)));
  exact.set("dtype", std::string(name_of(Dtype::float64)));
  try {
    if (op().infer(metas, attrs) == op().infer(metas, own)) return;
  } catch (const UserError&) {
    return;
  }
  SCOPED_TRACE("sums in float32");
  check_all(inputs.in, attrs, inputs.exact, exact, tolerance, true);
}

void CudaConformance::check_float32() {
  const double own = sample().tolerance;
  check_all(sample_inputs(op(), sample(), Dtype::float32), sample_attrs(sample(), Dtype::float32),
            sample_inputs(op(), sample(), Dtype::float64), sample_attrs(sample(), Dtype::float64),
            own > 0 ? std::max(own, kLeastTolerance) : 0, true);
}
TEST_P(CudaConformance, Float32) { check_float32(); }
TEST_P(CudaConformance, Bfloat16) { check_narrow(Dtype::bfloat16, kBfloat16Tolerance); }
TEST_P(CudaConformance, Float16) { check_narrow(Dtype::float16, kFloat16Tolerance); }

// How far the second of several parts of one row lies beside an aligned place; what has fewer than
// two dimensions is nobody's part here.
std::vector<Bytes> rows_beside(const Metas& metas) {
  std::vector<Bytes> beside;
  for (const Meta& meta : metas)
    beside.push_back(meta.shape.rank() > 1 && meta.elements() > 0
                         ? meta.bytes() / meta.shape[0] % kFullAlignment
                         : 0);
  return beside;
}
std::vector<Bytes> alignments_beside(const std::vector<Bytes>& beside) {
  std::vector<Bytes> alignments;
  for (Bytes bytes : beside) alignments.push_back(std::gcd(bytes, kFullAlignment));
  return alignments;
}

void CudaConformance::check_slices(const Tensors& in, const Attrs& attrs, double tolerance) {
  Metas metas;
  for (const Tensor& tensor : in) metas.push_back(tensor.meta());
  const Metas out = op().infer(metas, attrs);
  const Alignments beside{rows_beside(metas), rows_beside(out)};
  const Alignments slices{alignments_beside(beside.in), alignments_beside(beside.out)};
  if (slices.least() == kFullAlignment || !op().alias.empty()) return;
  auto whole = prepare(op(), {*device_, metas, out, attrs});
  auto part = prepare(op(), {*device_, metas, out, attrs, &slices});
  const GuardedResult wanted = run(*whole, in, out, kNanPoison);
  const GuardedResult got = run_on_device(*buffers_, *part, in, out, kNanPoison, {}, &beside);
  ASSERT_EQ(got.fault, "");
  check_values(got, out, wanted, out, tolerance);
}

// Parts of a batch begin wherever their dtype allows.
TEST_P(CudaConformance, Slices) {
  const double own = sample().tolerance;
  check_slices(sample_inputs(op(), sample(), Dtype::float32),
               sample_attrs(sample(), Dtype::float32),
               own > 0 ? std::max(own, kLeastTolerance) : 0);
  if (HasFatalFailure() || refuses_narrow(op())) return;
  SCOPED_TRACE("bfloat16");
  check_slices(narrow_inputs(op(), sample(), Dtype::bfloat16).in,
               sample_attrs(sample(), Dtype::bfloat16), kBfloat16Tolerance);
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaConformance, testing::ValuesIn(all_cases()), name_of_case);

// `--deterministic off`: cuDNN has other algorithms then. All other kernels are the same.
class CudaConformanceFree : public CudaConformance {
 protected:
  static void SetUpTestSuite() { set_up({.deterministic = false}); }
};
std::vector<Case> cases_of_cudnn() {
  std::vector<Case> cases;
  for (Case& c : all_cases()) {
    const std::string_view name = c.op->name;
    if (name.starts_with("conv") || name.starts_with("attention")) cases.push_back(std::move(c));
  }
  return cases;
}
TEST_P(CudaConformanceFree, Float32) { check_float32(); }
TEST_P(CudaConformanceFree, Bfloat16) { check_narrow(Dtype::bfloat16, kBfloat16Tolerance); }
TEST_P(CudaConformanceFree, Float16) { check_narrow(Dtype::float16, kFloat16Tolerance); }
INSTANTIATE_TEST_SUITE_P(Ops, CudaConformanceFree, testing::ValuesIn(cases_of_cudnn()),
                         name_of_case);

TEST(CudaCatalogue, HasAKernelOfEveryOp) {
  std::set<const Op*> have;
  for (const DeviceKernel& entry : cuda_kernels().list) have.insert(entry.op);
  for (const Op* op : catalogue()) EXPECT_TRUE(have.contains(op)) << op->name;
}

}  // namespace
}  // namespace pl::test::conformance_cuda_test

// What every op of the catalogue owes, checked on each of its samples: that all variants agree with
// the float64 reference and this one with answers computed elsewhere, that gradients are slopes,
// that kernels keep to their buffers and give the same bits again, and that wrong operands are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/sample.h"
#include "op/update.h"
#include "tests/guarded_call.h"
#include "tests/narrow_sample.h"
#include "tests/op_answers.h"
#include "tests/places.h"

namespace pl::test::conformance_test {
namespace {

constexpr unsigned char kNanPoison = 0xFF, kOtherPoison = 0x55;
constexpr double kStep = 1e-5;  // of finite differences
constexpr double kSlopeRelative = 1e-5, kSlopeAbsolute = 1e-7;
constexpr double kAnswerTolerance = 1e-8;  // answers are stored with ten digits
constexpr double kNarrowTolerance = 1e-2;  // of 16-bit floats, relative to the largest element
constexpr int64_t kMostSlopes = 32;        // finite differences taken per input

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

// A call of one variant in one precision.
struct Call {
  Metas in_metas, out_metas = {};
  Attrs attrs;
  Tensors in = {};
  std::unique_ptr<Kernel> kernel = nullptr;  // null: the variant does not support the call
};

// The call with its reals rounded to 16 bits, but for what the op keeps in float32. `exact`: the
// same numbers in float64.
struct NarrowCall {
  Call call;
  Tensors exact;
};

class Conformance : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    serial_ = std::make_unique<CpuBackend>(1);
    backend_ = std::make_unique<CpuBackend>(2);  // last: its team is the one that stays
    answers_ = read_answers(::pl::test::golden("op_answers.txt"));
  }
  static void TearDownTestSuite() {
    backend_.reset();
    serial_.reset();
    answers_.clear();
  }

  const Op& op() const { return *GetParam().op; }
  const Sample& sample() const { return GetParam().sample; }

  Call call_of(Dtype real, const char* variant, Backend& backend = *backend_) const {
    Call call;
    call.attrs = sample_attrs(sample(), real);
    call.in_metas = sample_metas(sample(), real);
    call.in = sample_inputs(op(), sample(), real);
    call.out_metas = op().infer(call.in_metas, call.attrs);
    call.kernel = prepare(op(), {backend, call.in_metas, call.out_metas, call.attrs}, variant);
    return call;
  }

  std::vector<const char*> variants() const {
    std::vector<const char*> names;
    for (const Variant& variant : op().variants)
      if (variant.device == DeviceKind::cpu) names.push_back(variant.name);
    return names;
  }
  const char* reference() const { return variants().back(); }

  void check_reference_against_answer(const Metas& out_metas, const GuardedResult& reference);
  void check_variant(const char* variant, const Metas& exact_metas, const GuardedResult& exact);
  void check_in_place(Call& call, const GuardedResult& apart);
  void check_narrow(Dtype dtype);
  void check_narrow(NarrowCall narrow, const Attrs& exact_attrs);
  void check_gradient();
  void check_slopes(Call& call, const Tensors& cotangents, size_t input, const Tensor& gradient);
  void check_refusals();
  void try_operands(const Metas& in);

  static std::unique_ptr<CpuBackend> backend_;
  static std::unique_ptr<CpuBackend> serial_;  // for the many small runs of finite differences
  static std::map<std::string, Answer> answers_;
};

std::unique_ptr<CpuBackend> Conformance::backend_;
std::unique_ptr<CpuBackend> Conformance::serial_;
std::map<std::string, Answer> Conformance::answers_;

// The largest finite size among the values, for relative tolerances.
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

void Conformance::check_reference_against_answer(const Metas& out_metas,
                                                 const GuardedResult& reference) {
  const auto found = answers_.find(std::string(op().name) + "/" + sample().name);
  constexpr const char* remedy = "; run tests/golden/op_answers.py";
  ASSERT_NE(found, answers_.end()) << "no stored answer" << remedy;
  const Answer& answer = found->second;
  ASSERT_EQ(answer.hash, sample_hash(op(), sample())) << "answer of another sample" << remedy;
  ASSERT_EQ(answer.outputs.size(), out_metas.size());
  for (size_t o = 0; o < out_metas.size(); ++o) {
    const Answer::Output& expected = answer.outputs[o];
    ASSERT_EQ(expected.elements, out_metas[o].elements()) << "output " << o;
    const double tolerance =
        kAnswerTolerance * std::max(1e-3, largest(reference.out[o], out_metas[o]));
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const size_t at = i * static_cast<size_t>(expected.stride);
      const double value = number_at(reference.out[o], out_metas[o].dtype, at);
      ASSERT_TRUE(close(value, expected.values[i], tolerance))
          << "output " << o << "[" << at << "]: " << value << ", answer " << expected.values[i];
    }
  }
}

// `exact`: the float64 reference's results.
void Conformance::check_variant(const char* variant, const Metas& exact_metas,
                                const GuardedResult& exact) {
  SCOPED_TRACE(std::string("variant ") + variant);
  Call call = call_of(Dtype::float32, variant);
  if (!call.kernel) {
    ASSERT_STRNE(variant, reference()) << "the last variant supports every call";
    return;
  }
  const GuardedResult first = run_guarded(*call.kernel, call.in, call.out_metas, kNanPoison);
  const GuardedResult again = run_guarded(*call.kernel, call.in, call.out_metas, kOtherPoison);
  ASSERT_EQ(first.fault, "");
  ASSERT_EQ(again.fault, "");
  ASSERT_TRUE(first.out == again.out) << "a second run, with other bytes in outputs and workspace, "
                                         "gave other bits";
  for (size_t o = 0; o < call.out_metas.size(); ++o) {
    const Meta& meta = call.out_metas[o];
    const double tolerance =
        is_floating(meta.dtype) ? sample().tolerance * largest(exact.out[o], exact_metas[o]) : 0;
    for (int64_t i = 0; i < meta.elements(); ++i) {
      const double value = number_at(first.out[o], meta.dtype, static_cast<size_t>(i));
      const double wanted = number_at(exact.out[o], exact_metas[o].dtype, static_cast<size_t>(i));
      ASSERT_TRUE(close(value, wanted, tolerance))
          << "output " << o << "[" << i << "]: " << value << ", float64 " << wanted;
    }
  }
  check_in_place(call, first);
}

NarrowCall narrow_call(const Op& op, const Sample& sample, Dtype dtype) {
  NarrowCall result;
  NarrowInputs inputs = narrow_inputs(op, sample, dtype);
  result.call.attrs = sample_attrs(sample, dtype);
  result.call.in = std::move(inputs.in);
  result.exact = std::move(inputs.exact);
  for (const Tensor& tensor : result.call.in) result.call.in_metas.push_back(tensor.meta());
  return result;
}

// Ops that take no 16-bit floats: what they work on is float32 in every policy.
bool refuses_narrow(const Op& op) { return !op.next_version.empty() || &op == &kSumSquares; }

void Conformance::check_narrow(Dtype dtype) {
  SCOPED_TRACE(pl::name_of(dtype));
  auto rounded = [&] { return narrow_call(op(), sample(), dtype); };
  NarrowCall narrow = rounded();
  if (narrow.call.in_metas == sample_metas(sample(), Dtype::float32) &&
      narrow.call.attrs == sample_attrs(sample(), Dtype::float32))
    return;  // integers alone
  if (refuses_narrow(op())) return;
  const Attrs exact = sample_attrs(sample(), Dtype::float64);
  check_narrow(rounded(), exact);
  // Ops that offer it may give their sums in float32.
  Attrs wide_attrs = narrow.call.attrs, exact_attrs = exact;
  wide_attrs.set("dtype", std::string(name_of(Dtype::float32)));
  exact_attrs.set("dtype", std::string(name_of(Dtype::float64)));
  try {
    if (op().infer(narrow.call.in_metas, wide_attrs) ==
        op().infer(narrow.call.in_metas, narrow.call.attrs))
      return;
  } catch (const UserError&) {
    return;
  }
  SCOPED_TRACE("sums in float32");
  narrow.call.attrs = wide_attrs;
  check_narrow(std::move(narrow), exact_attrs);
}

// All variants against the reference in float64.
void Conformance::check_narrow(NarrowCall narrow, const Attrs& exact_attrs) {
  Call& call = narrow.call;
  call.out_metas = op().infer(call.in_metas, call.attrs);
  Metas exact_in;
  for (const Tensor& tensor : narrow.exact) exact_in.push_back(tensor.meta());
  const Metas exact_out = op().infer(exact_in, exact_attrs);
  auto reference_kernel = prepare(op(), {*backend_, exact_in, exact_out, exact_attrs}, reference());
  const GuardedResult exact = run_guarded(*reference_kernel, narrow.exact, exact_out, kNanPoison);
  std::vector<const char*> names = variants();
  names.push_back("widened");
  bool any = false;
  for (const char* variant : names) {
    SCOPED_TRACE(std::string("variant ") + variant);
    call.kernel = prepare(op(), {*backend_, call.in_metas, call.out_metas, call.attrs}, variant);
    if (!call.kernel) continue;
    any = true;
    const GuardedResult first = run_guarded(*call.kernel, call.in, call.out_metas, kNanPoison);
    const GuardedResult again = run_guarded(*call.kernel, call.in, call.out_metas, kOtherPoison);
    ASSERT_EQ(first.fault, "");
    ASSERT_EQ(again.fault, "");
    ASSERT_TRUE(first.out == again.out) << "a second run gave other bits";
    for (size_t o = 0; o < call.out_metas.size(); ++o) {
      const Meta& meta = call.out_metas[o];
      const double tolerance =
          is_floating(meta.dtype) ? kNarrowTolerance * largest(exact.out[o], exact_out[o]) : 0;
      for (int64_t i = 0; i < meta.elements(); ++i) {
        const double value = number_at(first.out[o], meta.dtype, static_cast<size_t>(i));
        const double wanted = number_at(exact.out[o], exact_out[o].dtype, static_cast<size_t>(i));
        ASSERT_TRUE(close(value, wanted, tolerance))
            << "output " << o << "[" << i << "]: " << value << ", float64 " << wanted;
      }
    }
    check_in_place(call, first);
  }
  EXPECT_TRUE(any) << "no kernel takes it";
}

// Each pair alone, where the sizes allow it; updates of variables also all at once.
void Conformance::check_in_place(Call& call, const GuardedResult& apart) {
  std::vector<InOut> pairs(op().in_place.begin(), op().in_place.end());
  const auto versions = next_versions(op(), call.out_metas.size());
  pairs.insert(pairs.end(), versions.begin(), versions.end());
  pairs.insert(pairs.end(), op().alias.begin(), op().alias.end());
  std::vector<std::vector<InOut>> trials;
  for (const InOut& pair : pairs)
    if (static_cast<size_t>(pair.in) < call.in_metas.size() &&
        call.in_metas[static_cast<size_t>(pair.in)].bytes() ==
            call.out_metas[static_cast<size_t>(pair.out)].bytes())
      trials.push_back({pair});
  if (versions.size() > 1) trials.emplace_back(versions.begin(), versions.end());
  for (const auto& trial : trials) {
    const GuardedResult placed =
        run_guarded(*call.kernel, call.in, call.out_metas, kNanPoison, trial);
    ASSERT_EQ(placed.fault, "");
    ASSERT_TRUE(placed.out == apart.out)
        << "output " << trial[0].out << " in place of input " << trial[0].in << " gave other bits";
  }
}

// Fixed weights that turn the outputs into one number; undefined for outputs without slope.
Tensors cotangents_of(const Metas& metas) {
  Tensors result;
  for (const Meta& meta : metas) {
    result.emplace_back();
    if (!is_floating(meta.dtype)) continue;
    result.back() = Tensor(meta);
    for (int64_t i = 0; i < meta.elements(); ++i) {
      const double size = 0.5 + static_cast<double>((i * 37 + 11) % 101) / 101;
      const double value = i * 29 % 7 < 3 ? -size : size;
      if (meta.dtype == Dtype::float64)
        result.back().data_as<double>()[i] = value;
      else
        result.back().data_as<float>()[i] = static_cast<float>(value);
    }
  }
  return result;
}

void Conformance::check_gradient() {
  SCOPED_TRACE("gradient");
  if (!op().gradient) return;
  BackendScope scope(*serial_);
  Call call = call_of(Dtype::float64, reference(), *serial_);
  const Tensors out = apply(op(), call.in, call.attrs);
  const Tensors cotangents = cotangents_of(call.out_metas);
  if (std::none_of(cotangents.begin(), cotangents.end(),
                   [](const Tensor& tensor) { return tensor.defined(); }))
    return;
  const Tensors gradients = op().gradient({call.attrs, call.in, out, cotangents});
  ASSERT_EQ(gradients.size(), call.in.size());
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!is_floating(call.in_metas[i].dtype)) {
      EXPECT_FALSE(gradients[i].defined())
          << "a gradient for input " << i << ", which has no slope";
      continue;
    }
    const bool is_label =
        sample().in[i].fill == Fill::one_hot || sample().in[i].fill == Fill::probabilities;
    if (is_label && !gradients[i].defined()) continue;
    if (gradients[i].defined()) {
      ASSERT_EQ(gradients[i].meta(), call.in_metas[i]) << "gradient of input " << i;
    }
    check_slopes(call, cotangents, i, gradients[i]);
  }
}

// Central differences of sum(cotangent * output). An undefined gradient stands for zeros.
void Conformance::check_slopes(Call& call, const Tensors& cotangents, size_t input,
                               const Tensor& gradient) {
  const int64_t elements = call.in_metas[input].elements();
  const int64_t stride = std::max<int64_t>(1, elements / kMostSlopes) | 1;
  double* x = call.in[input].data_as<double>();
  std::vector<void*> in, up, down;
  Tensors up_out, down_out;
  for (const Tensor& tensor : call.in) in.push_back(tensor.data());
  for (const Meta& meta : call.out_metas) {
    up.push_back(up_out.emplace_back(meta).data());
    down.push_back(down_out.emplace_back(meta).data());
  }
  Buffer workspace(call.kernel->workspace_bytes);
  for (int64_t i = 0; i < elements; i += stride) {
    const double kept = x[i];
    x[i] = kept + kStep;
    call.kernel->run(in.data(), up.data(), workspace.data());
    x[i] = kept - kStep;
    call.kernel->run(in.data(), down.data(), workspace.data());
    x[i] = kept;
    double slope = 0;
    for (size_t o = 0; o < cotangents.size(); ++o) {
      if (!cotangents[o].defined() || cotangents[o].dtype() != Dtype::float64) continue;
      for (int64_t k = 0; k < cotangents[o].meta().elements(); ++k)
        slope += cotangents[o].data_as<double>()[k] *
                 (up_out[o].data_as<double>()[k] - down_out[o].data_as<double>()[k]);
    }
    slope /= 2 * kStep;
    const double value = gradient.defined() ? gradient.data_as<double>()[i] : 0;
    ASSERT_NEAR(value, slope, kSlopeAbsolute + kSlopeRelative * std::fabs(slope))
        << "input " << input << "[" << i << "]";
  }
}

// Accepted operands must also run, with zeros; anything else must be a UserError.
void Conformance::try_operands(const Metas& in) {
  std::string text;
  for (const Meta& meta : in) text += meta.text() + " ";
  SCOPED_TRACE("operands " + text);
  try {
    const Metas out = op().infer(in, sample().attrs);
    Bytes bytes = 0;
    for (const Metas& metas : {in, out})
      for (const Meta& meta : metas) bytes = std::max(bytes, meta.bytes());
    if (bytes > kMiB) return;
    auto kernel = prepare(op(), {*backend_, in, out, sample().attrs});
    Tensors zeros;
    for (const Meta& meta : in) {
      zeros.emplace_back(meta);
      std::memset(zeros.back().data(), 0, static_cast<size_t>(meta.bytes()));
    }
    EXPECT_EQ(run_guarded(*kernel, zeros, out, kNanPoison).fault, "");
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a UserError: " << error.what();
  }
}

void Conformance::check_refusals() {
  SCOPED_TRACE("refusals");
  const Metas metas = sample_metas(sample(), Dtype::float32);
  for (size_t i = 0; i < metas.size(); ++i) {
    auto with = [&](Dtype dtype, std::vector<Dim> dims) {
      Metas changed = metas;
      changed[i] = {dtype, Shape(std::move(dims))};
      try_operands(changed);
    };
    const auto& [dtype, shape] = metas[i];
    std::vector<Dim> dims = shape.dims();
    for (Dtype other : {Dtype::float64, Dtype::bfloat16, Dtype::int32, Dtype::int64, Dtype::uint8})
      with(other, dims);
    for (size_t d = 0; d < dims.size(); ++d)
      for (Dim dim : {dims[d] + 1, Dim{0}, Dim{1}, Dim{-1}, Dim{1} << 40}) {
        std::vector<Dim> changed = dims;
        changed[d] = dim;
        with(dtype, changed);
      }
    with(dtype, std::vector<Dim>(dims.size() + 1, Dim{1} << 40));  // overflows from rank 2 on
    dims.push_back(1);
    with(dtype, dims);
    dims.resize(dims.size() - std::min<size_t>(2, dims.size()));
    with(dtype, dims);
    Metas fewer = metas;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    try_operands(fewer);
  }
  Metas more = metas;
  more.push_back({Dtype::float32, {}});
  try_operands(more);
}

TEST_P(Conformance, Holds) {
  Call exact = call_of(Dtype::float64, reference());
  ASSERT_TRUE(exact.kernel) << "the last variant supports float64";
  const GuardedResult result = run_guarded(*exact.kernel, exact.in, exact.out_metas, kNanPoison);
  ASSERT_EQ(result.fault, "");
  check_reference_against_answer(exact.out_metas, result);
  for (const char* variant : variants()) check_variant(variant, exact.out_metas, result);
  check_narrow(Dtype::bfloat16);
  check_narrow(Dtype::float16);
  check_gradient();
  check_refusals();
}

INSTANTIATE_TEST_SUITE_P(Ops, Conformance, testing::ValuesIn(all_cases()), name_of_case);

TEST(Catalogue, HasCompleteRecordsUnderDifferentNames) {
  std::map<std::string, int> names;
  for (const Op* op : catalogue()) {
    EXPECT_EQ(++names[op->name], 1) << op->name;
    EXPECT_EQ(find_op(op->name), op);
    EXPECT_TRUE(op->summary && op->infer && op->rows && op->cost && op->samples) << op->name;
    EXPECT_FALSE(op->variants.empty()) << op->name;
    std::map<std::string, int> samples;
    for (const Sample& sample : op->samples())
      EXPECT_EQ(++samples[sample.name], 1) << op->name << "/" << sample.name;
  }
}

// A library's kernels may differ: their thread count is part of the numerics key.
void expect_same_bits(const Op& op, const Call& call, const char* variant) {
  if (std::string_view(variant) == "onednn") return;
  std::vector<GuardedResult> results;
  for (int threads : {1, 2, 3}) {
    CpuBackend backend(threads);
    auto kernel = prepare(op, {backend, call.in_metas, call.out_metas, call.attrs}, variant);
    if (!kernel || kernel->library != "") return;
    results.push_back(run_guarded(*kernel, call.in, call.out_metas, kNanPoison));
    EXPECT_EQ(results.back().fault, "") << op.name << ", " << variant;
    EXPECT_TRUE(results.back().out == results[0].out) << op.name << ", variant " << variant;
  }
}

// Benchmark samples are large enough to be shared out.
TEST(Catalogue, GivesTheSameBitsAtAnyThreadCount) {
  constexpr Bytes kLargest = 8 * kMiB;
  for (const Op* op : catalogue()) {
    for (const Sample& sample : op->samples()) {
      SCOPED_TRACE(sample.name);
      Call call{.in_metas = sample_metas(sample, Dtype::float32), .attrs = sample.attrs};
      call.out_metas = op->infer(call.in_metas, sample.attrs);
      Bytes bytes = 0;
      for (const Metas& metas : {call.in_metas, call.out_metas})
        for (const Meta& meta : metas) bytes += meta.bytes();
      if (!sample.benchmark || bytes > kLargest) continue;
      call.in = sample_inputs(*op, sample);
      for (const Variant& variant : op->variants) expect_same_bits(*op, call, variant.name);
      if (refuses_narrow(*op)) continue;
      Call narrow = narrow_call(*op, sample, Dtype::bfloat16).call;
      narrow.out_metas = op->infer(narrow.in_metas, narrow.attrs);
      for (const Variant& variant : op->variants) expect_same_bits(*op, narrow, variant.name);
      expect_same_bits(*op, narrow, "widened");
    }
  }
}

}  // namespace
}  // namespace pl::test::conformance_test

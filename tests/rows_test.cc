// What an op says of the samples of a batch, taken at its word: where it `maps`, the rows of a part
// of the batch are those of the whole, and where it `sums`, the parts add up. Parts are read and
// written where they lie in the whole, so at any address that an element may have.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/sample.h"
#include "op/step_params.h"
#include "tests/guarded_call.h"

namespace pl::test::rows_test {
namespace {

constexpr unsigned char kNan = 0xFF;
constexpr size_t kMostOperands = 8;

using Content = std::vector<unsigned char>;

struct Call {
  const Op& op;
  const Sample& sample;
  Dtype real;
  const char* variant;
  Attrs attrs;
  Metas in, out;
  Tensors tensors;
};

// Metas and attributes of one of `parts` parts. False: the call cannot be cut so.
bool cut(const Call& whole, RowMask mask, int64_t parts, Metas& in, Metas& out, Attrs& attrs) {
  auto divide = [&](Meta& meta) {
    std::vector<Dim> dims = meta.shape.dims();
    if (dims.empty() || dims[0] % parts != 0) return false;
    dims[0] /= parts;
    meta.shape = Shape(std::move(dims));
    return true;
  };
  in = whole.in;
  attrs = whole.attrs;
  for (size_t i = 0; i < in.size(); ++i)
    if ((mask >> i & 1) && !divide(in[i])) return false;
  try {
    out = whole.op.infer(in, attrs);
  } catch (const UserError&) {
    return false;
  }
  for (size_t o = 0; o < out.size(); ++o) {
    Meta expected = whole.out[o];
    const bool rows = output_rows(whole.op, attrs, mask, static_cast<int>(o)) == Rows::maps;
    if (rows && !divide(expected)) return false;
    if (out[o] != expected) return false;
  }
  return true;
}

void add_to(Content& sum, const Content& term, const Meta& meta) {
  for (int64_t i = 0; i < meta.elements(); ++i) {
    auto add = [&]<class T>(T a) {
      T b;
      const size_t at = static_cast<size_t>(i) * sizeof(T);
      std::memcpy(&a, sum.data() + at, sizeof a);
      std::memcpy(&b, term.data() + at, sizeof b);
      a += b;
      std::memcpy(sum.data() + at, &a, sizeof a);
    };
    meta.dtype == Dtype::float64 ? add(double{}) : add(float{});
  }
}

// All parts one after another, each with pointers into the whole.
std::vector<Content> run_in_parts(const Call& whole, RowMask mask, int64_t parts, int64_t samples,
                                  const Metas& in, const Metas& out, Kernel& kernel) {
  std::vector<Fenced> ins, outs;
  std::vector<Content> sums;
  for (const Tensor& tensor : whole.tensors) {
    ins.emplace_back(tensor.meta().bytes(), kNan);
    if (tensor.meta().bytes() > 0)
      std::memcpy(ins.back().data(), tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
  }
  for (const Meta& meta : whole.out) {
    outs.emplace_back(meta.bytes(), kNan);
    sums.emplace_back(static_cast<size_t>(meta.bytes()), 0);
  }
  Fenced workspace(kernel.workspace_bytes, kNan);
  auto maps = [&](size_t o) {
    return output_rows(whole.op, whole.attrs, mask, static_cast<int>(o)) == Rows::maps;
  };
  for (int64_t part = 0; part < parts; ++part) {
    std::vector<void*> in_at, out_at;
    for (size_t i = 0; i < ins.size(); ++i) {
      in_at.push_back(ins[i].data() + (mask >> i & 1 ? part * in[i].bytes() : 0));
      if (whole.sample.in[i].fill != Fill::step_params) continue;
      StepParams params;
      std::memcpy(&params, whole.tensors[i].data(), sizeof params);
      params.row_offset += part * (samples / parts);
      params.call_rows = samples / parts;
      std::memcpy(ins[i].data(), &params, sizeof params);
    }
    for (size_t o = 0; o < outs.size(); ++o)
      out_at.push_back(outs[o].data() + (maps(o) ? part * out[o].bytes() : 0));
    kernel.run(in_at.data(), out_at.data(), workspace.data());
    for (size_t o = 0; o < outs.size(); ++o)
      if (!maps(o)) add_to(sums[o], outs[o].content(), out[o]);
  }
  std::vector<Content> results;
  for (size_t o = 0; o < outs.size(); ++o) {
    EXPECT_TRUE(outs[o].intact()) << "wrote outside output " << o;
    results.push_back(maps(o) ? outs[o].content() : sums[o]);
  }
  return results;
}

// The largest difference, relative to the largest element; NaN must meet NaN.
double distance(const Content& a, const Content& b, const Meta& meta) {
  double most = 1e-30, difference = 0;
  for (int64_t i = 0; i < meta.elements(); ++i) {
    const double x = number_at(a, meta.dtype, static_cast<size_t>(i));
    const double y = number_at(b, meta.dtype, static_cast<size_t>(i));
    if (std::isnan(x) || std::isnan(y)) {
      if (std::isnan(x) != std::isnan(y)) return 1e300;
      continue;
    }
    if (x == y) continue;
    difference = std::max(difference, std::abs(x - y));
    most = std::max({most, std::abs(x), std::abs(y)});
  }
  for (int64_t i = 0; i < meta.elements(); ++i) {
    const double x = std::abs(number_at(a, meta.dtype, static_cast<size_t>(i)));
    if (std::isfinite(x)) most = std::max(most, x);
  }
  return difference / most;
}

// True when the call could be cut and was looked at.
bool check_parts(Call& whole, Backend& backend, RowMask mask, int64_t parts, int64_t samples) {
  Metas in, out;
  Attrs attrs;
  if (!cut(whole, mask, parts, in, out, attrs)) return false;
  const auto of_whole =
      prepare(whole.op, {backend, whole.in, whole.out, whole.attrs}, whole.variant);
  const auto of_part = prepare(whole.op, {backend, in, out, attrs}, whole.variant);
  if (!of_whole || !of_part) return false;
  const GuardedResult expected = run_guarded(*of_whole, whole.tensors, whole.out, kNan);
  const auto results = run_in_parts(whole, mask, parts, samples, in, out, *of_part);
  const double tolerance = whole.real == Dtype::float64 ? 1e-11 : 2 * whole.sample.tolerance;
  for (size_t o = 0; o < out.size(); ++o)
    EXPECT_LE(distance(expected.out[o], results[o], whole.out[o]), tolerance)
        << whole.op.name << "/" << whole.sample.name << " " << whole.variant << " "
        << name_of(whole.real) << ", output " << o << " in " << parts << " parts, operands "
        << mask;
  return true;
}

// Which operands may carry the rows of one batch: all sets of those with the same dimension 0.
int check_call(Call& call, Backend& backend) {
  int checks = 0;
  std::set<Dim> heights;
  for (const Meta& meta : call.in)
    if (meta.shape.rank() > 0 && meta.shape[0] > 1) heights.insert(meta.shape[0]);
  for (Dim height : heights)
    for (RowMask mask = 1; mask < RowMask{1} << call.in.size(); ++mask) {
      bool fits = true;
      for (size_t i = 0; i < call.in.size() && fits; ++i)
        if (mask >> i & 1)
          fits = call.in[i].shape.rank() > 0 && call.in[i].shape[0] == height &&
                 call.sample.in[i].fill != Fill::step_params;
      for (size_t o = 0; o < call.out.size() && fits; ++o) {
        const Rows rows = output_rows(call.op, call.attrs, mask, static_cast<int>(o));
        fits = rows == Rows::maps || (rows == Rows::sums && is_floating(call.out[o].dtype));
      }
      if (!fits) continue;
      checks += check_parts(call, backend, mask, height, height);
      if (height % 2 == 0 && height > 2) checks += check_parts(call, backend, mask, 2, height);
    }
  return checks;
}

// A rule sees no shapes: where it depends on one, the op's function leaves an attribute.
void mark_as_functions_do(Call& call) {
  const std::string name = call.op.name;
  const int rank = call.in.empty() ? 0 : call.in[0].shape.rank();
  if ((name == "softmax" || name == "softmax_gradient") && rank == 1)
    call.attrs.set("vector", int64_t{1});
  if (name == "causal_mask" && rank == 2) call.attrs.set("matrix", int64_t{1});
}

TEST(Rows, OfEveryOpAreWhatItSays) {
  CpuBackend backend(2);
  std::map<std::string, int> checks;
  int all = 0;
  for (const Op* op : catalogue())
    for (const Sample& sample : op->samples()) {
      if (sample.benchmark || op->effects.writes_state || sample.in.size() > kMostOperands)
        continue;
      for (const Variant& variant : op->variants)
        for (Dtype real : {Dtype::float64, Dtype::float32}) {
          Call call{*op,
                    sample,
                    real,
                    variant.name,
                    sample_attrs(sample, real),
                    sample_metas(sample, real),
                    {},
                    {}};
          if (variant.device != DeviceKind::cpu) continue;
          mark_as_functions_do(call);
          call.out = op->infer(call.in, call.attrs);
          call.tensors = sample_inputs(*op, sample, real);
          const int done = check_call(call, backend);
          checks[op->name] += done;
          all += done;
        }
    }
  for (const char* name : {"matmul", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient",
                           "max_pool", "max_pool_gradient", "dropout", "softmax", "relu", "add",
                           "sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_gradient",
                           "sparse_categorical_accuracy", "layer_norm", "attention", "reduce_sum"})
    EXPECT_GT(checks[name], 0) << name;
  std::printf("%d cut calls of %zu ops\n", all, checks.size());
  EXPECT_GT(all, 500);
}

}  // namespace
}  // namespace pl::test::rows_test

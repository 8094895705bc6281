// What image_rows.cc says of an op, taken at its word on every sample: a row of an operand changes
// no row of an output beyond the rule's, and where a rule calls an operand linear, the parts of
// that operand, cut by rows, add up.
#include "op/image_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/sample.h"

namespace pl::test::image_rows_test {
namespace {

using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& tensor) {
  Numbers out;
  for (int64_t i = 0; i < tensor.meta().elements(); ++i) switch (tensor.meta().dtype) {
      case Dtype::float64:
        out.push_back(static_cast<const double*>(tensor.data())[i]);
        break;
      case Dtype::float32:
        out.push_back(static_cast<double>(static_cast<const float*>(tensor.data())[i]));
        break;
      case Dtype::int32:
        out.push_back(static_cast<const int32_t*>(tensor.data())[i]);
        break;
      default:
        out.push_back(static_cast<const uint8_t*>(tensor.data())[i]);
    }
  return out;
}

Tensor copy_of(const Tensor& tensor) {
  Tensor copy(tensor.meta());
  std::memcpy(copy.data(), tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
  return copy;
}

struct Example {
  const Op& op;
  Tensors in;
  Attrs attrs;
  RowMask images;
  ImageRule rule;

  bool image(size_t i) const { return (images >> i) & 1; }
  std::vector<Numbers> run(const Tensors& operands) const {
    std::vector<Numbers> out;
    for (const Tensor& tensor : apply(op, operands, attrs)) out.push_back(numbers_of(tensor));
    return out;
  }
  // Calls `each(element)` for all elements of image row `row`.
  template <class Each>
  static void in_row(const Shape& shape, int64_t row, const Each& each) {
    const int64_t width = shape.without_front().without_front().elements();
    for (int64_t b = 0; b < shape[0]; ++b)
      for (int64_t e = 0; e < width; ++e) each((b * shape[1] + row) * width + e);
  }
  // Output rows that the rule lets row `row` of operand `i` reach.
  bool reaches(int64_t row, int64_t out_row) const {
    const WindowAxis& w = rule.window;
    auto in_window = [&](int64_t at, int64_t read) {
      const int64_t offset = read - (at * w.stride - w.before);
      return offset >= 0 && offset <= (w.kernel - 1) * w.dilation;
    };
    if (rule.kind == ImageRule::gathers) return in_window(out_row, row);
    if (rule.kind == ImageRule::scatters) return in_window(row, out_row);
    return row == out_row;
  }
};

void expect_local(const Example& example) {
  const std::vector<Numbers> before = example.run(example.in);
  const Tensors results = apply(example.op, example.in, example.attrs);
  for (size_t i = 0; i < example.in.size(); ++i) {
    if (!example.image(i) || example.in[i].dtype() != Dtype::float64) continue;
    const Shape& shape = example.in[i].shape();
    for (int64_t row = 0; row < shape[1]; ++row) {
      Tensors changed = example.in;
      changed[i] = copy_of(example.in[i]);
      double* data = static_cast<double*>(changed[i].data());
      Example::in_row(shape, row, [&](int64_t e) { data[e] = 0.75 - 1.5 * data[e]; });
      const std::vector<Numbers> after = example.run(changed);
      for (size_t o = 0; o < after.size(); ++o) {
        const Shape& out = results[o].shape();
        if (out.rank() < 3) continue;  // rows without an axis of their own
        for (int64_t r = 0; r < out[1]; ++r) {
          if (example.reaches(row, r)) continue;
          Example::in_row(out, r, [&](int64_t e) {
            const auto at = static_cast<size_t>(e);
            ASSERT_EQ(before[o][at], after[o][at]) << "row " << row << " reaches row " << r;
          });
        }
      }
    }
  }
}

void expect_linear(const Example& example) {
  for (size_t i = 0; i < example.in.size(); ++i) {
    if (!(example.rule.linear >> i & 1) || !example.image(i)) continue;
    if (example.in[i].dtype() != Dtype::float64) continue;
    const Shape& shape = example.in[i].shape();
    Tensors upper = example.in, lower = example.in;
    upper[i] = copy_of(example.in[i]);
    lower[i] = copy_of(example.in[i]);
    for (int64_t row = 0; row < shape[1]; ++row)
      Example::in_row(shape, row, [&](int64_t e) {
        static_cast<double*>((row % 3 == 0 ? upper : lower)[i].data())[e] = 0;
      });
    const auto whole = example.run(example.in), a = example.run(upper), b = example.run(lower);
    for (size_t o = 0; o < whole.size(); ++o)
      for (size_t e = 0; e < whole[o].size(); ++e)
        ASSERT_NEAR(whole[o][e], a[o][e] + b[o][e], 1e-9 * (1 + std::abs(whole[o][e])))
            << "operand " << i << ", output " << o;
  }
}

TEST(ImageRows, AreWhatTheRulesSay) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  std::set<std::string> local, linear;
  for (const Op* op : catalogue())
    for (const Sample& sample : op->samples()) {
      if (sample.benchmark || op->effects.writes_state) continue;
      const Metas metas = sample_metas(sample, Dtype::float64);
      const Attrs attrs = sample_attrs(sample, Dtype::float64);
      bool large = false;
      for (const Meta& meta : metas) large = large || meta.elements() > 4000;
      if (large) continue;
      for (RowMask images = 1; images < RowMask{1} << std::min<size_t>(metas.size(), 6); ++images) {
        bool all = true;
        for (size_t i = 0; i < metas.size(); ++i)
          if (images >> i & 1)
            all =
                all && metas[i].shape.rank() > 2 && metas[i].shape[1] > 1 && metas[i].shape[0] > 0;
        if (!all) continue;
        const ImageRule rule = image_rule(op->name, metas, attrs, images);
        if (rule.kind == ImageRule::mixes) continue;
        SCOPED_TRACE(std::string(op->name) + "/" + sample.name + ", images " +
                     std::to_string(images));
        const Example example{*op, sample_inputs(*op, sample, Dtype::float64), attrs, images, rule};
        if (rule.kind != ImageRule::sums) expect_local(example);
        expect_linear(example);
        local.insert(op->name);
        if (rule.linear) linear.insert(op->name);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  for (const char* op : {"conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "max_pool",
                         "max_pool_gradient", "concatenate", "softmax"})
    EXPECT_TRUE(local.count(op)) << op << " has no sample with image rows";
  EXPECT_TRUE(linear.count("conv2d_input_gradient"));
}

}  // namespace
}  // namespace pl::test::image_rows_test

#include "op/image_rows.h"

#include <algorithm>
#include <bit>

#include "op/avg_pool.h"
#include "op/conv2d.h"
#include "op/conv2d_pool.h"
#include "op/fused_pointwise.h"
#include "op/max_pool.h"
#include "op/tile_program.h"

namespace pl {
namespace {

struct Call {
  const Metas& in;
  const Attrs& attrs;
  RowMask images, terms;
  bool image(size_t i) const { return (images >> i) & 1; }
  RowMask all() const { return (RowMask{1} << in.size()) - 1; }
};

ImageRule maps(RowMask linear = 0, bool additive = false) {
  return {ImageRule::maps, {}, linear, additive};
}

// Dimension `axis` of the result, as the operand has it; 1 where it is broadcast.
Dim along(const Shape& shape, int rank, int axis) {
  const int at = axis - (rank - shape.rank());
  return at < 0 ? 1 : shape[at];
}

// Pointwise with broadcasting: what is no image must be the same for every row, and nothing may
// shift an image's axes.
bool rows_aligned(const Call& call) {
  int rank = 0;
  for (const Meta& meta : call.in) rank = std::max(rank, meta.shape.rank());
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    if (call.image(i) ? shape.rank() != rank : along(shape, rank, 1) != 1) return false;
  }
  return true;
}

ImageRule pointwise(const Call&) { return maps(); }
ImageRule linear(const Call&) { return maps(1); }
ImageRule of_second(const Call&) { return maps(2); }  // (y, dy): linear in dy
ImageRule of_third(const Call&) { return maps(4); }
ImageRule of_fifth(const Call&) { return maps(16); }
ImageRule sums_of_fourth(const Call&) { return {ImageRule::sums, {}, 8}; }

ImageRule scaled(const Call& call) { return maps(call.attrs.real("offset", 0) == 0 ? 1 : 0); }

template <RowMask each, bool together>
ImageRule binary(const Call& call) {
  ImageRule rule = maps(each, together);
  if (call.images && !rows_aligned(call)) rule.kind = ImageRule::mixes;
  return rule;
}

// Whether the program's result is linear in the operands `terms` together, the others fixed.
bool linear_program(const TileProgram& program, RowMask terms) {
  enum Kind : uint8_t { fixed, linear, other };
  std::vector<Kind> kinds;
  for (int i = 0; i < program.operands; ++i) kinds.push_back(terms >> i & 1 ? linear : fixed);
  for (const TileInstruction& made : program.code) {
    const Kind a = kinds[static_cast<size_t>(made.a)];
    const Kind b = made.b < 0 ? fixed : kinds[static_cast<size_t>(made.b)];
    Kind result = other;
    switch (made.op) {
      case TileOp::add:
      case TileOp::subtract:
        if (a == linear && b == linear) result = linear;
        break;
      case TileOp::multiply:
        if ((a == linear && b == fixed) || (a == fixed && b == linear)) result = linear;
        break;
      case TileOp::divide:
      case TileOp::dropout:
        if (a == linear && b == fixed) result = linear;
        break;
      case TileOp::relu_gradient:
      case TileOp::leaky_relu_gradient:
      case TileOp::gelu_gradient:
        if (a == fixed && b == linear) result = linear;
        break;
      case TileOp::negative:
      case TileOp::cast:
        result = a;
        break;
      case TileOp::scale:
        if (made.y == 0) result = a;
        break;
      default:
        break;
    }
    if (a == fixed && b == fixed) result = fixed;
    kinds.push_back(result);
  }
  return kinds.back() == linear;
}

// Dropout in a chain counts elements in the whole image: band_split.cc says where they are.
ImageRule fused(const Call& call) {
  const auto program =
      parse_tile_program(call.attrs.text("program"), static_cast<int>(call.in.size()));
  ImageRule rule = maps();
  if (!program || (call.images && !rows_aligned(call))) return {};
  for (size_t i = 0; i < call.in.size(); ++i)
    if (linear_program(*program, RowMask{1} << i)) rule.linear |= RowMask{1} << i;
  if (call.terms && linear_program(*program, call.terms)) rule.together = call.terms;
  return rule;
}

// With statistics that are given: those of the batch itself would mix all rows.
template <RowMask images>
ImageRule normalised(const Call& call) {
  return call.images == images ? maps() : ImageRule{};
}

// Along the last axis, which must not be the rows.
ImageRule last_axis(const Call& call) {
  ImageRule rule = maps();
  if (call.in[0].shape.rank() < 3) rule.kind = ImageRule::mixes;
  return rule;
}
ImageRule last_axis_gradient(const Call& call) {
  ImageRule rule = last_axis(call);
  rule.linear = 2;
  return rule;
}

ImageRule reduced(const Call& call, bool sum) {
  const auto& axes = call.attrs.list("axes");
  auto has = [&](int64_t axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  ImageRule rule = maps(sum ? 1 : 0);
  if (has(1)) rule.kind = sum ? ImageRule::sums : ImageRule::mixes;
  if (has(0) && !has(1)) rule.kind = ImageRule::mixes;
  return rule;
}
ImageRule reduce_sum_rule(const Call& call) { return reduced(call, true); }
ImageRule reduce_max_rule(const Call& call) { return reduced(call, false); }

// Dimensions 0 and 1 stay as they are.
ImageRule reshaped(const Call& call) {
  ImageRule rule = maps(1);
  const auto& shape = call.attrs.list("shape");
  const Shape& x = call.in[0].shape;
  if (shape.size() < 2 || x.rank() < 2 || shape[1] != x[1] || (shape[0] != -1 && shape[0] != x[0]))
    rule.kind = ImageRule::mixes;
  return rule;
}

ImageRule broadcast(const Call& call) {
  ImageRule rule = reshaped(call);
  if (call.attrs.list("shape").size() != static_cast<size_t>(call.in[0].shape.rank()))
    rule.kind = ImageRule::mixes;
  return rule;
}

ImageRule beyond_rows(const Call& call) {
  ImageRule rule = maps(1);
  if (call.attrs.integer("axis") < 2) rule.kind = ImageRule::mixes;
  return rule;
}
ImageRule concatenated(const Call& call) {
  ImageRule rule = maps(0, true);
  if (call.attrs.integer("axis") < 2 || call.images != call.all()) rule.kind = ImageRule::mixes;
  return rule;
}

ImageRule conv2d_rule(const Call& call) {
  if (call.images != 1) return {};
  const Conv2dForm form = conv2d_form(call.in, call.attrs);
  const RowMask linear = form.bias || form.relu ? 0 : 1;
  return {ImageRule::gathers, form.window.h, linear};
}
ImageRule conv2d_input_gradient_rule(const Call& call) {
  if (call.images != 2) return {};
  return {ImageRule::scatters, conv2d_input_gradient_form(call.in, call.attrs).window.h, 2};
}
ImageRule conv2d_weight_gradient_rule(const Call& call) {
  if (call.images != 3) return {};
  const Conv2dForm form = conv2d_weight_gradient_form(call.in, call.attrs);
  return {ImageRule::sums, form.window.h, form.bias ? RowMask{2} : RowMask{3}};
}
ImageRule max_pool_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::gathers, max_pool_form(call.in, call.attrs).window.h};
}
ImageRule max_pool_gradient_rule(const Call& call) {
  if (call.images != 3) return {};
  return {ImageRule::scatters, max_pool_gradient_form(call.in, call.attrs).window.h, 2};
}

// A convolution's window under each row of a pool's, which has no padding.
WindowAxis both(const Conv2dPoolForm& form) {
  const WindowAxis &conv = form.conv.window.h, &pool = form.pool.window.h;
  const Dim reach = (conv.kernel - 1) * conv.dilation + 1;
  return {.in = conv.in,
          .out = pool.out,
          .kernel = (pool.kernel - 1) * conv.stride + reach,
          .stride = conv.stride * pool.stride,
          .dilation = 1,
          .before = conv.before,
          .after = conv.after};
}
ImageRule conv2d_pool_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::gathers, both(conv2d_pool_form(call.in, call.attrs))};
}
ImageRule conv2d_pool_weight_gradient_rule(const Call& call) {
  if (call.images != 7) return {};
  return {ImageRule::sums, both(conv2d_pool_weight_gradient_form(call.in, call.attrs)), 4};
}

ImageRule avg_pool_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::gathers, avg_pool_form(call.in, call.attrs).window.h, 1};
}
ImageRule avg_pool_gradient_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::scatters, avg_pool_gradient_form(call.in, call.attrs).window.h, 1};
}

// One row each, moved on; of a crop, back.
template <int direction>
ImageRule padded(const Call& call) {
  if (call.images != 1) return {};
  const auto& pads = call.attrs.list("pads");
  const Dim rows = call.in[0].shape[1], top = direction * pads[0], bottom = direction * pads[1];
  const WindowAxis window{.in = rows,
                          .out = rows + top + bottom,
                          .kernel = 1,
                          .stride = 1,
                          .dilation = 1,
                          .before = top,
                          .after = bottom};
  return {ImageRule::gathers, window, 1};
}

// A row becomes `size` rows; between the centres of pixels it reaches half as far again.
WindowAxis enlarged(const Call& call, Dim rows) {
  const Dim size = call.attrs.list("size")[0];
  const bool nearest = call.attrs.text("interpolation", "nearest") == "nearest";
  const Dim beyond = nearest ? 0 : (size + 1) / 2;
  return {.in = rows * size,
          .out = rows,
          .kernel = size + 2 * beyond,
          .stride = size,
          .dilation = 1,
          .before = beyond,
          .after = beyond};
}
ImageRule upsample_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::scatters, enlarged(call, call.in[0].shape[1]), 1};
}
ImageRule upsample_gradient_rule(const Call& call) {
  if (call.images != 1) return {};
  return {ImageRule::gathers, enlarged(call, call.in[0].shape[1] / call.attrs.list("size")[0]), 1};
}

ImageRule matmul_rule(const Call& call) {
  const bool ta = call.attrs.integer("transpose_a", 0), tb = call.attrs.integer("transpose_b", 0);
  const bool plain = call.in.size() == 2 && call.attrs.text("activation", "none") == "none";
  ImageRule rule;
  rule.linear = plain ? 3 : 0;
  if (call.in[0].shape.rank() < 3) return rule;
  if (call.images == 1 && !ta) rule.kind = ImageRule::maps;
  if (call.images == 3 && ta && !tb) rule.kind = ImageRule::sums;
  return rule;
}

struct Entry {
  std::string_view op;
  ImageRule (*rule)(const Call&);
};
// The ops that know about image rows.
constexpr Entry kRules[] = {
    {"add", binary<0, true>},
    {"subtract", binary<0, true>},
    {"multiply", binary<3, false>},
    {"divide", binary<1, false>},
    {"maximum", binary<0, false>},
    {"minimum", binary<0, false>},
    {"equal_mask", binary<0, false>},
    {"greater_mask", binary<0, false>},
    {"greater_equal_mask", binary<0, false>},
    {"floor_divide", binary<0, false>},
    {"mod", binary<0, false>},
    {"power", binary<0, false>},
    {"fused_pointwise", fused},
    {"negative", linear},
    {"exp", pointwise},
    {"log", pointwise},
    {"sqrt", pointwise},
    {"square", pointwise},
    {"tanh", pointwise},
    {"sigmoid", pointwise},
    {"abs", pointwise},
    {"sign", pointwise},
    {"softplus", pointwise},
    {"expm1", pointwise},
    {"sin", pointwise},
    {"cos", pointwise},
    {"floor", pointwise},
    {"ceil", pointwise},
    {"trunc", pointwise},
    {"round", pointwise},
    {"scale", scaled},
    {"cast", linear},
    {"one_hot", pointwise},
    {"relu", pointwise},
    {"relu_gradient", of_second},
    {"relu_bits", pointwise},
    {"relu_bits_gradient", of_second},
    {"clipped_relu", pointwise},
    {"clipped_relu_gradient", of_second},
    {"leaky_relu", pointwise},
    {"leaky_relu_gradient", of_second},
    {"gelu", pointwise},
    {"gelu_gradient", of_second},
    {"dropout", linear},
    {"dropout_gradient", linear},
    {"own_rows", linear},
    {"softmax", last_axis},
    {"softmax_gradient", last_axis_gradient},
    {"log_softmax", last_axis},
    {"sparsemax", last_axis},
    {"layer_norm", last_axis},
    {"layer_norm_gradient", of_fifth},
    {"layer_norm_parameter_gradient", sums_of_fourth},
    {"batch_norm_apply", normalised<0b1>},
    {"batch_norm_add", normalised<0b100001>},
    {"sparse_softmax_cross_entropy", last_axis},
    {"sparse_softmax_cross_entropy_gradient", of_third},
    {"softmax_cross_entropy", last_axis},
    {"softmax_cross_entropy_gradient", of_third},
    {"sparse_categorical_accuracy", last_axis},
    {"categorical_accuracy", last_axis},
    {"reduce_sum", reduce_sum_rule},
    {"reduce_max", reduce_max_rule},
    {"reduce_min", reduce_max_rule},
    {"reduce_prod", reduce_max_rule},
    {"reduce_norm", reduce_max_rule},
    {"reshape", reshaped},
    {"broadcast_to", broadcast},
    {"concatenate", concatenated},
    {"slice", beyond_rows},
    {"slice_gradient", beyond_rows},
    {"conv2d", conv2d_rule},
    {"conv2d_input_gradient", conv2d_input_gradient_rule},
    {"conv2d_weight_gradient", conv2d_weight_gradient_rule},
    {"max_pool", max_pool_rule},
    {"max_pool_gradient", max_pool_gradient_rule},
    {"conv2d_pool", conv2d_pool_rule},
    {"conv2d_pool_weight_gradient", conv2d_pool_weight_gradient_rule},
    {"avg_pool", avg_pool_rule},
    {"avg_pool_gradient", avg_pool_gradient_rule},
    {"pad", padded<1>},
    {"crop", padded<-1>},
    {"upsample", upsample_rule},
    {"upsample_gradient", upsample_gradient_rule},
    {"matmul", matmul_rule},
};

}  // namespace

bool ImageRule::linear_in(RowMask operands, size_t count) const {
  if (std::has_single_bit(operands) && (linear & operands)) return true;
  return operands == together || (additive && operands == (RowMask{1} << count) - 1);
}

ImageRule image_rule(std::string_view op, const Metas& in, const Attrs& attrs, RowMask images,
                     RowMask terms) {
  for (const Entry& entry : kRules)
    if (entry.op == op) return entry.rule({in, attrs, images, terms});
  return {};
}

}  // namespace pl

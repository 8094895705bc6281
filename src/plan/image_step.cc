// mark_images: the role of every value, own_rows nodes where images become owned, and how many rows
// of the input a row of each value stands for.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "op/image_rows.h"
#include "op/own_rows.h"
#include "op/step_params.h"
#include "plan/bands.h"
#include "plan/split.h"

namespace pl {
namespace {

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw UserError("[split] " + (node.path.empty() ? node.op : node.path) + ": " + node.op + " " +
                  why + ", so that an image cannot be worked off in bands");
}

bool image(const Value& value) {
  return value.rows && value.meta.shape.rank() >= 3 && value.meta.shape[1] > 1;
}

class Marker {
 public:
  explicit Marker(const Graph& whole) : whole_(whole) {
    step_.graph = whole;
    step_.graph.nodes.clear();
    step_.role.assign(whole.values.size(), BandRole::outside);
    step_.height.assign(whole.values.size(), 0);
    owned_.assign(whole.values.size(), -1);
  }

  ImageStep run() {
    for (ValueId id : whole_.inputs) {
      const Value& value = whole_.values[index(id)];
      if (value.meta == step_params_meta() && !value.rows) step_.params = id;
      if (!value.rows) continue;
      step_.role[index(id)] = image(value) ? BandRole::image : BandRole::sample;
      if (!image(value)) continue;
      step_.height[index(id)] = value.meta.shape[1];
      if (step_.rows == 0) step_.rows = value.meta.shape[1];
    }
    if (step_.rows == 0 || step_.params < 0)
      throw UserError("[split] expected images (batch, height, width, ...) to cut into bands");
    for (const Node& node : whole_.nodes) visit(node);
    for (ValueId id : whole_.keep) check_kept(id);
    return std::move(step_);
  }

 private:
  BandRole role(ValueId id) const { return step_.role[index(id)]; }

  RowMask mask_of(const Node& node, std::initializer_list<BandRole> roles) const {
    RowMask mask = 0;
    for (size_t i = 0; i < node.in.size(); ++i)
      if (std::find(roles.begin(), roles.end(), role(node.in[i])) != roles.end())
        mask |= RowMask{1} << i;
    return mask;
  }

  ImageRule rule_of(const Node& node, RowMask images, RowMask terms) const {
    Metas in;
    for (ValueId id : node.in) in.push_back(step_.graph.values[index(id)].meta);
    return image_rule(node.op, in, node.attrs, images, terms);
  }

  void emit(const Node& node, BandRole role, int64_t height = 0) {
    for (ValueId out : node.out) {
      step_.role[index(out)] = role;
      step_.height[index(out)] = height;
      step_.graph.values[index(out)].producer = static_cast<NodeId>(step_.graph.nodes.size());
    }
    step_.graph.nodes.push_back(node);
  }

  // The value with the band's own rows alone.
  ValueId own(ValueId id, const std::string& path) {
    if (owned_[index(id)] >= 0) return owned_[index(id)];
    Value value = step_.graph.values[index(id)];
    const auto result = static_cast<ValueId>(step_.graph.values.size());
    step_.graph.values.push_back(std::move(value));
    step_.role.push_back(BandRole::owned);
    step_.height.push_back(0);
    owned_.push_back(result);
    const int64_t height = step_.height[index(id)];
    emit({.op = kOwnRows.name, .in = {id, step_.params}, .out = {result}, .path = path},
         BandRole::owned, height);
    return owned_[index(id)] = result;
  }

  void visit(const Node& original) {
    Node node = original;
    // What was made for all rows alike, such as the gradient of a sum, counts only as owned.
    for (ValueId& in : node.in)
      if (made_owned(in)) in = owned_[index(in)];
    const Op& op = get_op(node.op);
    const RowMask all = node.in.empty() ? 0 : (RowMask{1} << node.in.size()) - 1;
    const RowMask totals = mask_of(node, {BandRole::total});
    const RowMask samples =
        mask_of(node, {BandRole::sample, BandRole::image, BandRole::owned, BandRole::part});
    bool rows = samples != 0;
    for (ValueId out : node.out) rows = rows || whole_.values[index(out)].rows;
    if (op.effects.writes_state || totals || mask_of(node, {BandRole::after})) {
      if (totals == all && op.additive) return emit(node, BandRole::total);
      if (rows) refuse(node, "works on an image with something summed over all of it");
      return emit(node, BandRole::after);
    }
    if (!rows) return emit(node, BandRole::outside);
    if (mask_of(node, {BandRole::part})) return visit_part(node);
    if (!mask_of(node, {BandRole::image, BandRole::owned})) return visit_sample(node);
    visit_image(node);
  }

  bool made_owned(ValueId id) const {
    return owned_[index(id)] >= 0 && uniform_.size() > index(id) && uniform_[index(id)];
  }

  // What is left of a sum over rows, still of one sample.
  void visit_part(const Node& node) {
    const RowMask parts = mask_of(node, {BandRole::part});
    if (mask_of(node, {BandRole::image, BandRole::owned}) ||
        !rule_of(node, 0, parts).linear_in(parts, node.in.size()))
      refuse(node, "needs what is summed over all rows of an image");
    emit_sums(node);
  }

  void emit_sums(const Node& node) {
    const bool rows = whole_.values[index(node.out[0])].rows;
    for (ValueId out : node.out) {
      const Value& value = whole_.values[index(out)];
      if (value.rows != rows || !is_floating(value.meta.dtype))
        refuse(node, "sums rows of an image in a way that bands cannot");
    }
    emit(node, rows ? BandRole::part : BandRole::total);
  }

  // Made of what all rows have in common. What is spread out over rows is an image.
  void visit_sample(const Node& node) {
    const Value& value = whole_.values[index(node.out[0])];
    if (!value.rows) refuse(node, "sums samples that have no image");
    const bool spread = node.op == "broadcast_to" || node.op == "fill";
    if (!spread || !image(value)) return emit(node, BandRole::sample);
    emit(node, BandRole::image, value.meta.shape[1]);
    own(node.out[0], node.path);
    uniform_.resize(step_.graph.values.size(), false);
    uniform_[index(node.out[0])] = true;
  }

  void visit_image(Node node) {
    const RowMask images = mask_of(node, {BandRole::image, BandRole::owned});
    RowMask owned = mask_of(node, {BandRole::owned});
    const ImageRule rule = rule_of(node, images, owned);
    if (rule.kind == ImageRule::mixes) refuse(node, "mixes the rows of an image");
    if (owned && !rule.linear_in(owned, node.in.size()))
      refuse(node, "is not linear in a gradient");
    if (rule.kind == ImageRule::sums) {
      for (size_t i = 0; i < node.in.size() && !owned; ++i)
        if ((images & rule.linear) >> i & 1) {
          node.in[i] = own(node.in[i], node.path);
          owned = RowMask{1} << i;
        }
      if (!owned) refuse(node, "sums rows of an image in a way that bands cannot");
      return emit_sums(node);
    }
    int64_t height = 0;
    for (size_t i = 0; i < node.in.size(); ++i)
      if (images >> i & 1) height = step_.height[index(node.in[i])];
    if (rule.kind == ImageRule::gathers) height = rule.window.out;
    if (rule.kind == ImageRule::scatters) height = rule.window.in;
    emit(node, owned ? BandRole::owned : BandRole::image, height);
  }

  void check_kept(ValueId id) {
    const Value& value = whole_.values[index(id)];
    if (value.producer < 0 || !value.rows) return;
    if (role(id) != BandRole::image)
      throw UserError("[split] " + value.path +
                      ": a step that keeps something of each sample that is no image, or made of "
                      "gradients, cannot work it off in bands");
    if (value.meta.shape.rank() < 2 || value.meta.shape[1] != step_.height[index(id)])
      throw UserError("[split] " + value.path + ": expected an axis for the rows of a kept image");
    step_.kept.push_back(id);
  }

  const Graph& whole_;
  ImageStep step_;
  std::vector<ValueId> owned_;  // per value: its owned form, or -1
  std::vector<bool> uniform_;   // made for all rows alike: only the owned form is read
};

Ratio times(Ratio r, int64_t num, int64_t den) {
  Ratio result{r.num * num, r.den * den};
  const int64_t common = std::gcd(result.num, result.den);
  return {result.num / common, result.den / common};
}

// Spreads pitches over the step, forwards and backwards, until nothing new is known.
class Pitches {
 public:
  explicit Pitches(ImageStep& step) : step_(step) {}

  void run() {
    step_.pitch.assign(step_.graph.values.size(), {});
    for (ValueId id : step_.graph.inputs)
      if (step_.role[index(id)] == BandRole::image) {
        step_.pitch[index(id)] = {1, 1};
        break;
      }
    do {
      changed_ = false;
      for (const Node& node : step_.graph.nodes) relate(node);
      for (size_t n = step_.graph.nodes.size(); n-- > 0;) relate(step_.graph.nodes[n]);
    } while (changed_);
    for (size_t v = 0; v < step_.pitch.size(); ++v)
      if (has_rows(static_cast<ValueId>(v))) {
        if (step_.pitch[v].num == 0)
          throw UserError("[split] " + step_.graph.values[v].path +
                          ": rows that have nothing to do with the first input's cannot be bands");
        step_.align = std::lcm(step_.align, step_.pitch[v].num);
      }
  }

 private:
  bool has_rows(ValueId id) const {
    return step_.role[index(id)] == BandRole::image || step_.role[index(id)] == BandRole::owned;
  }

  // Values of the node, each with a factor on the pitch that they have in common.
  void relate(const Node& node) {
    Metas in;
    RowMask images = 0;
    for (size_t i = 0; i < node.in.size(); ++i) {
      in.push_back(step_.graph.values[index(node.in[i])].meta);
      if (has_rows(node.in[i])) images |= RowMask{1} << i;
    }
    if (!images) return;
    const ImageRule rule = image_rule(node.op, in, node.attrs, images);
    const bool windowed = rule.kind == ImageRule::gathers || rule.kind == ImageRule::scatters ||
                          rule.window.kernel > 0;
    const int64_t stride = windowed ? rule.window.stride : 1;
    // `coarse` ones have a row for each `stride` rows of the others.
    std::vector<std::pair<ValueId, bool>> values;
    for (size_t i = 0; i < node.in.size(); ++i)
      if (images >> i & 1)
        values.emplace_back(node.in[i], rule.kind == ImageRule::scatters ||
                                            (rule.kind == ImageRule::sums && i > 0));
    for (ValueId out : node.out)
      if (has_rows(out)) values.emplace_back(out, rule.kind == ImageRule::gathers);
    Ratio fine;
    for (const auto& [id, coarse] : values)
      if (const Ratio& pitch = step_.pitch[index(id)]; pitch.num > 0)
        fine = coarse ? times(pitch, 1, stride) : pitch;
    if (fine.num == 0) return;
    for (const auto& [id, coarse] : values) {
      const Ratio mine = coarse ? times(fine, stride, 1) : fine;
      Ratio& pitch = step_.pitch[index(id)];
      if (pitch.num > 0 && pitch != mine) refuse(node, "meets images of two scales");
      changed_ = changed_ || pitch.num == 0;
      pitch = mine;
    }
  }

  ImageStep& step_;
  bool changed_ = false;
};

}  // namespace

bool has_images(const Graph& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                     [&](ValueId id) { return image(graph.values[index(id)]); });
}

ImageStep mark_images(const Graph& graph) {
  ImageStep step = Marker(graph).run();
  check_graph(step.graph);
  Pitches(step).run();
  return step;
}

}  // namespace pl

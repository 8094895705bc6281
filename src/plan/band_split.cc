// split_bands: the step's Loop, whose trips are the bands of all samples.
#include <algorithm>

#include "base/error.h"
#include "op/place_rows.h"
#include "plan/bands.h"
#include "plan/split.h"
#include "plan/splitter.h"

namespace pl {
namespace {

class BandSplitter final : public Splitter {
 public:
  BandSplitter(const ImageStep& step, const Bands& bands)
      : Splitter(step.graph, samples_of(step.graph) * bands.count(), samples_of(step.graph)),
        step_(step),
        bands_(bands) {}

 private:
  [[noreturn]] void refuse(const Node& node, const std::string& why) const override {
    throw UserError("[split] " + (node.path.empty() ? node.op : node.path) + ": " + node.op + " " +
                    why + ", so that an image cannot be worked off in bands");
  }

  bool has_rows(ValueId id) const {
    return step_.role[index(id)] == BandRole::image || step_.role[index(id)] == BandRole::owned;
  }
  // Input rows as rows of a value.
  int64_t scaled(ValueId id, int64_t rows) const {
    const Ratio& pitch = step_.pitch[index(id)];
    return rows * pitch.den / pitch.num;
  }
  int64_t height(ValueId id) const { return step_.height[index(id)] - scaled(id, bands_.shift); }

  Part classify(const Node& node) override {
    Part part = Part::body;
    for (ValueId out : node.out) {
      const BandRole role = step_.role[index(out)];
      if (role == BandRole::outside) part = Part::before;
      if (role == BandRole::after) part = Part::after;
      summed_[index(out)] = role == BandRole::total;
      part_[index(out)] = part;
    }
    return part;
  }

  Meta part_meta(ValueId id) const override {
    const Meta& meta = whole_.values[index(id)].meta;
    std::vector<Dim> dims = meta.shape.dims();
    dims[0] /= batch_;
    if (has_rows(id)) dims[1] = height(id);
    return {meta.dtype, Shape(std::move(dims))};
  }

  // Bits and the like hold an image's rows without an axis for them.
  bool fits(ValueId id, const Meta& made) const override {
    const Shape& shape = whole_.values[index(id)].meta.shape;
    if (has_rows(id) && (shape.rank() < 2 || shape[1] != step_.height[index(id)])) return true;
    return Splitter::fits(id, made);
  }

  std::vector<int64_t> starts_of(ValueId id) const override {
    if (!has_rows(id))
      refuse({.op = "input", .path = whole_.values[index(id)].path}, "has no rows");
    std::vector<int64_t> starts;
    for (int64_t start : bands_.starts) starts.push_back(scaled(id, start));
    return starts;
  }

  void adapt(const Node& node, Node& copy) const override {
    const ValueId out = node.out[0];
    for (const char* name : {"shape", "input_shape"}) {
      if (!copy.attrs.has(name)) continue;
      std::vector<Dim> shape = copy.attrs.list(name);
      if (!shape.empty() && shape[0] > 0 && whole_.values[index(out)].rows) shape[0] /= batch_;
      if (shape.size() > 1 && has_rows(out)) shape[1] = height(out);
      copy.attrs.set(name, std::move(shape));
    }
    const bool own = node.op == "own_rows";
    if (has_rows(out) && (own || draws_mask(node))) set_rows(out, own, copy.attrs);
  }

  static bool draws_mask(const Node& node) {
    if (node.op == "fused_pointwise")
      return node.attrs.text("program").find("dropout") != std::string::npos;
    return node.op == "dropout" || node.op == "dropout_gradient";
  }

  // Where bands lie among an image's rows, and which of them are whose.
  void set_rows(ValueId id, bool with_own, Attrs& attrs) const {
    const int64_t height = step_.height[index(id)];
    attrs.set("height", height);
    attrs.set("starts", starts_of(id));
    if (!with_own) return;
    std::vector<int64_t> own;
    for (int64_t row : bands_.own) own.push_back(std::min(scaled(id, row), height));
    own.push_back(height);
    attrs.set("own", std::move(own));
  }

  // An image fills up band by band.
  void keep(ValueId id) override {
    if (is_outside(id)) return;
    Node place{.op = kPlaceRows.name, .in = {body_operand(step_.params)}};
    set_rows(id, true, place.attrs);
    collect(id, std::move(place));
  }

  void finish(Loop& loop) const override {
    loop.samples = 1;
    loop.bands = bands_.count();
  }

  const ImageStep& step_;
  const Bands& bands_;
};

}  // namespace

Graph split_bands(const ImageStep& step, const Bands& bands) {
  return BandSplitter(step, bands).run();
}

}  // namespace pl

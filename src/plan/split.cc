#include "plan/split.h"

#include <algorithm>

#include "base/error.h"
#include "op/step_params.h"
#include "plan/splitter.h"

namespace pl {
namespace {

// Every divisor up to here is a choice; beyond it each is about twice the one before.
constexpr int64_t kDense = 4, kRatio = 15;  // tenths

class BatchSplitter final : public Splitter {
 public:
  BatchSplitter(const Graph& whole, int64_t trips) : Splitter(whole, trips, samples_of(whole)) {
    check(trips > 0 && batch_ > 0 && batch_ % trips == 0, "trips divide the batch");
    find_early_sums();
  }

 private:
  [[noreturn]] void refuse(const Node& node, const std::string& why) const override {
    throw UserError("[split] " + (node.path.empty() ? node.op : node.path) + ": " + node.op + " " +
                    why + ", so the batch cannot be split");
  }

  bool has_rows(const std::vector<ValueId>& values) const {
    return std::any_of(values.begin(), values.end(),
                       [&](ValueId id) { return whole_.values[index(id)].rows; });
  }

  // Sums over samples that the step's inputs alone decide, such as the number of positions that a
  // mask lets count, and that meet samples again: they are taken before the loop. What they are
  // made of is computed there for the whole batch, and in the body once more if it is read.
  void find_early_sums() {
    std::vector<bool> given(whole_.values.size(), false), meets(whole_.values.size(), false);
    // Random ops read the step's parameters.
    for (ValueId id : whole_.inputs)
      given[index(id)] = whole_.values[index(id)].meta != step_params_meta();
    for (const Node& node : whole_.nodes) {
      const bool known =
          !get_op(node.op).effects.writes_state &&
          std::all_of(node.in.begin(), node.in.end(), [&](ValueId id) { return given[index(id)]; });
      for (ValueId out : node.out) given[index(out)] = known;
    }
    for (size_t n = whole_.nodes.size(); n-- > 0;) {
      const Node& node = whole_.nodes[n];
      const bool with_rows = has_rows(node.in) || has_rows(node.out);
      const bool hands_on = !with_rows && std::any_of(node.out.begin(), node.out.end(),
                                                      [&](ValueId id) { return meets[index(id)]; });
      const bool sums = with_rows && !has_rows(node.out) && !node.out.empty();
      if (sums && given[index(node.out[0])] && meets[index(node.out[0])]) hoisted_.push_back(n);
      if (!hands_on && (!with_rows || get_op(node.op).additive)) continue;
      for (ValueId in : node.in) meets[index(in)] = true;
    }
    std::vector<bool> wanted(whole_.values.size(), false);
    for (size_t n = whole_.nodes.size(); n-- > 0;) {
      const Node& node = whole_.nodes[n];
      const bool hoisted = std::find(hoisted_.begin(), hoisted_.end(), n) != hoisted_.end();
      early_[n] = !hoisted && has_rows(node.out) &&
                  std::any_of(node.out.begin(), node.out.end(),
                              [&](ValueId id) { return wanted[index(id)]; });
      if (hoisted || early_[n])
        for (ValueId in : node.in) wanted[index(in)] = true;
    }
  }

  // The node sums what the trips sum, so that it can work on the terms of one trip. Operands that
  // are added as they are, which the output could replace, must be terms themselves; the rest are
  // samples that the op sums.
  bool adds_up(const Op& op, const Node& node) const {
    if (!op.additive) return false;
    bool terms = false;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool term = std::any_of(op.in_place.begin(), op.in_place.end(), [&](const InOut& pair) {
        return pair.in == static_cast<int>(i);
      });
      const ValueId in = node.in[i];
      if (term ? !summed_[index(in)] : !whole_.values[index(in)].rows) return false;
      terms = terms || term;
    }
    return terms;
  }

  RowMask rows_in(const Node& node) const {
    RowMask mask = 0;
    for (size_t i = 0; i < node.in.size(); ++i)
      if (whole_.values[index(node.in[i])].rows) mask |= RowMask{1} << i;
    return mask;
  }

  Part classify(const Node& node) override {
    const auto at = static_cast<size_t>(&node - whole_.nodes.data());
    if (std::find(hoisted_.begin(), hoisted_.end(), at) != hoisted_.end()) return Part::before;
    const Op& op = get_op(node.op);
    const RowMask mask = rows_in(node);
    bool behind = op.effects.writes_state;
    for (ValueId in : node.in)
      behind = behind || part_[index(in)] == Part::after || summed_[index(in)];
    if (adds_up(op, node)) {
      for (ValueId out : node.out) {
        part_[index(out)] = Part::body;
        summed_[index(out)] = true;
      }
      return Part::body;
    }
    Part part = behind ? Part::after : Part::before;
    bool any_rows = mask != 0;
    for (ValueId out : node.out) any_rows = any_rows || whole_.values[index(out)].rows;
    if (any_rows) {
      if (behind) refuse(node, "works on samples with something summed over all of them");
      part = Part::body;
    }
    for (size_t o = 0; o < node.out.size(); ++o) {
      const ValueId out = node.out[o];
      part_[index(out)] = part;
      if (part != Part::body || whole_.values[index(out)].rows) continue;
      if (output_rows(op, node.attrs, mask, static_cast<int>(o)) != Rows::sums)
        refuse(node, "mixes the samples of the batch");
      if (!is_floating(whole_.values[index(out)].meta.dtype))
        refuse(node,
               "sums samples in " + std::string(name_of(whole_.values[index(out)].meta.dtype)));
      summed_[index(out)] = true;
    }
    return part;
  }

  Meta part_meta(ValueId id) const override {
    const Meta& meta = whole_.values[index(id)].meta;
    std::vector<Dim> dims = meta.shape.dims();
    dims[0] /= trips_;
    return {meta.dtype, Shape(std::move(dims))};
  }

  // Ops that make rows out of nothing hold the batch in their shape.
  void adapt(const Node&, Node& copy) const override {
    if (!copy.attrs.integer("rows", 0) || !copy.attrs.has("shape")) return;
    std::vector<Dim> shape = copy.attrs.list("shape");
    if (!shape.empty() && shape[0] > 0) shape[0] /= trips_;
    copy.attrs.set("shape", std::move(shape));
  }

  bool adds_in_place() const override { return true; }

  void finish(Loop& loop) const override { loop.samples = batch_ / trips_; }

  std::vector<size_t> hoisted_;  // nodes whose sums are taken before the loop
};

}  // namespace

int64_t samples_of(const Graph& graph) {
  for (ValueId id : graph.inputs) {
    const Value& value = graph.values[index(id)];
    if (value.rows) return value.meta.shape[0];
  }
  return 0;
}

Graph split_batch(const Graph& graph, int64_t trips) { return BatchSplitter(graph, trips).run(); }

std::vector<int64_t> split_choices(int64_t batch) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= batch; ++d) {
    if (batch % d != 0) continue;
    divisors.push_back(d);
    if (d * d != batch) divisors.push_back(batch / d);
  }
  std::sort(divisors.begin(), divisors.end());
  std::vector<int64_t> choices;
  for (int64_t d : divisors) {
    const int64_t last = choices.empty() ? 0 : choices.back();
    if (d <= kDense || 10 * d >= kRatio * last) choices.push_back(d);
  }
  // The finest split is the last resort: it takes the place of a near neighbour.
  if (!choices.empty() && choices.back() != batch) choices.back() = batch;
  return choices;
}

}  // namespace pl

// How high bands must be: rows that the own ones depend on, by a walk from own_rows nodes back to
// the inputs (and forth along the gradients), in intervals.
#include "plan/bands.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "op/image_rows.h"

namespace pl {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;  // rows that no image has
// The finest bands have at least this share of their halo as rows of their own, one in so many; and
// each choice saves at least a tenth of the rows of the one before.
constexpr int64_t kLeastOwn = 4, kLeastSaved = 10;

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
int64_t up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

// Rows [begin, end); empty when they meet.
struct Span {
  int64_t begin = kFar, end = -kFar;
  bool empty() const { return begin >= end; }
  void add(const Span& other) {
    if (other.empty()) return;
    begin = std::min(begin, other.begin);
    end = std::max(end, other.end);
  }
};

// Rows of the window's input that rows `at` of its output read.
Span read_by(const WindowAxis& w, const Span& at) {
  if (at.empty()) return {};
  return {at.begin * w.stride - w.before,
          (at.end - 1) * w.stride - w.before + (w.kernel - 1) * w.dilation + 1};
}

// Rows of the window's output that read any of rows `of` of its input.
Span reading(const WindowAxis& w, const Span& of) {
  if (of.empty()) return {};
  const int64_t reach = (w.kernel - 1) * w.dilation + 1;
  return {ceil_div(of.begin + w.before - reach + 1, w.stride),
          floor_div(of.end - 1 + w.before, w.stride) + 1};
}

class Walk {
 public:
  // `edges`: images end where they do. Without, the rows around them count as well.
  Walk(const ImageStep& step, bool edges)
      : step_(step), edges_(edges), spans_(step.graph.values.size()) {
    for (const Node& node : step.graph.nodes) rules_.push_back(rule_of(node));
  }

  // What one band needs of every value, whose own rows are [begin, end) of the first input;
  // `last`: and all that follow.
  const std::vector<Span>& run(int64_t begin, int64_t end, bool last) {
    std::fill(spans_.begin(), spans_.end(), Span{});
    const auto& nodes = step_.graph.nodes;
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Node& node = nodes[n];
      if (node.op == "own_rows") {
        const Span own = own_rows(node.out[0], begin, end, last);
        spans_[index(node.out[0])].add(own);
        spans_[index(node.in[0])].add(own);
      } else {
        follow(node, rules_[n]);
      }
    }
    for (ValueId id : step_.kept) spans_[index(id)].add(own_rows(id, begin, end, last));
    for (size_t n = nodes.size(); n-- > 0;) ask(nodes[n], rules_[n]);
    return spans_;
  }

 private:
  int64_t rows_at(ValueId id, int64_t input_row) const {
    const Ratio& pitch = step_.pitch[index(id)];
    return input_row * pitch.den / pitch.num;
  }
  Span own_rows(ValueId id, int64_t begin, int64_t end, bool last) const {
    const Span own{rows_at(id, begin), rows_at(id, end)};
    if (!edges_) return own;
    return {std::min(own.begin, height(id)), last ? height(id) : std::min(own.end, height(id))};
  }
  bool is(ValueId id, BandRole role) const { return step_.role[index(id)] == role; }

  ImageRule rule_of(const Node& node) const {
    Metas in;
    RowMask images = 0;
    for (size_t i = 0; i < node.in.size(); ++i) {
      in.push_back(step_.graph.values[index(node.in[i])].meta);
      if (is(node.in[i], BandRole::image) || is(node.in[i], BandRole::owned))
        images |= RowMask{1} << i;
    }
    return images ? image_rule(node.op, in, node.attrs, images) : ImageRule{};
  }

  void need(ValueId id, Span span) {
    if (edges_) span = {std::max<int64_t>(span.begin, 0), std::min(span.end, height(id))};
    spans_[index(id)].add(span);
  }
  int64_t height(ValueId id) const { return step_.height[index(id)]; }

  // Owned values: where they are not zero, and the images that they meet there.
  void follow(const Node& node, const ImageRule& rule) {
    Span at;
    for (ValueId in : node.in)
      if (is(in, BandRole::owned)) at.add(spans_[index(in)]);
    if (at.empty()) return;
    // A weight gradient: operand 0 has the rows that the window reads, the others those it is at.
    const bool windowed = rule.kind == ImageRule::sums && rule.window.kernel > 0;
    const bool owned_read = windowed && is(node.in[0], BandRole::owned);
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!is(node.in[i], BandRole::image)) continue;
      if (owned_read)
        need(node.in[i], reading(rule.window, at));
      else
        need(node.in[i], windowed && i == 0 ? read_by(rule.window, at) : at);
    }
    if (rule.kind == ImageRule::gathers) at = reading(rule.window, at);
    if (rule.kind == ImageRule::scatters) at = read_by(rule.window, at);
    for (ValueId out : node.out)
      if (is(out, BandRole::owned)) need(out, at);
  }

  // Images: what the rows that are needed of them depend on.
  void ask(const Node& node, const ImageRule& rule) {
    Span at;
    for (ValueId out : node.out)
      if (is(out, BandRole::image)) at.add(spans_[index(out)]);
    if (at.empty()) return;
    if (rule.kind == ImageRule::gathers) at = read_by(rule.window, at);
    if (rule.kind == ImageRule::scatters) at = reading(rule.window, at);
    for (ValueId in : node.in)
      if (is(in, BandRole::image)) need(in, at);
  }

  const ImageStep& step_;
  bool edges_;
  std::vector<Span> spans_;
  std::vector<ImageRule> rules_;  // per node
};

// Rows of the first input that a band needs above and below its own, in multiples of `align`.
struct Halo {
  int64_t above = 0, below = 0;
};

Halo halo_of(const ImageStep& step) {
  Walk walk(step, false);
  const int64_t begin = 0, end = step.align;
  Halo halo;
  const std::vector<Span>& spans = walk.run(begin, end, false);
  for (size_t v = 0; v < spans.size(); ++v) {
    if (spans[v].empty()) continue;
    const Ratio& pitch = step.pitch[v];
    // Value row r begins at input row r * pitch.
    halo.above = std::max(halo.above, -floor_div(spans[v].begin * pitch.num, pitch.den));
    halo.below = std::max(halo.below, ceil_div(spans[v].end * pitch.num, pitch.den) - end);
  }
  return {up(halo.above, step.align), up(halo.below, step.align)};
}

int64_t start_of(int64_t band, int64_t count, int64_t shift, int64_t align) {
  return band == count - 1 ? shift : band * shift / (count - 1) / align * align;
}

// The most that a band may lack: no gap between the own rows of two bands.
int64_t largest_shift(int64_t rows, int64_t count, const Halo& halo, int64_t align) {
  const int64_t most = ((count - 1) * (rows - halo.above - halo.below)) / count;
  for (int64_t shift = most / align * align; shift > 0; shift -= align) {
    int64_t gap = 0;
    for (int64_t b = 1; b < count; ++b)
      gap = std::max(gap, start_of(b, count, shift, align) - start_of(b - 1, count, shift, align));
    if (gap <= rows - shift - halo.above - halo.below) return shift;
  }
  return 0;
}

}  // namespace

std::optional<Bands> find_bands(const ImageStep& step, int64_t count) {
  check(count > 1, "two bands at least");
  // Bands begin at different multiples of `align`: more than there are need no search.
  if (count > step.rows / step.align) return std::nullopt;
  const Halo halo = halo_of(step);
  Bands bands;
  bands.shift = largest_shift(step.rows, count, halo, step.align);
  if (bands.shift <= 0) return std::nullopt;
  for (int64_t b = 0; b < count; ++b) {
    bands.starts.push_back(start_of(b, count, bands.shift, step.align));
    if (b > 0 &&
        bands.starts[index(static_cast<int>(b))] <= bands.starts[index(static_cast<int>(b) - 1)])
      return std::nullopt;
    bands.own.push_back(b == 0 ? 0 : bands.starts.back() + halo.above);
  }
  // The halo was that of an inner band; at the edges it is less, never more.
  Walk walk(step, true);
  for (size_t b = 0; b < bands.starts.size(); ++b) {
    const bool last = b + 1 == bands.starts.size();
    const auto& spans = walk.run(bands.own[b], last ? step.rows : bands.own[b + 1], last);
    for (size_t v = 0; v < spans.size(); ++v) {
      if (spans[v].empty()) continue;
      const Ratio& pitch = step.pitch[v];
      const int64_t start = bands.starts[b] * pitch.den / pitch.num,
                    lacks = bands.shift * pitch.den / pitch.num;
      check(start <= spans[v].begin && spans[v].end <= start + step.height[v] - lacks,
            "a band has all that its rows depend on");
    }
  }
  return bands;
}

std::vector<int64_t> band_choices(const ImageStep& step) {
  const Halo halo = halo_of(step);
  const int64_t around = halo.above + halo.below;
  std::vector<int64_t> choices;
  int64_t last = step.rows;
  for (int64_t count = 2; count <= step.rows / step.align;
       count += std::max<int64_t>(1, count / 2)) {
    const int64_t rows = step.rows - largest_shift(step.rows, count, halo, step.align);
    if (rows >= step.rows || (rows - around) * kLeastOwn < around) break;
    if (rows * kLeastSaved > last * (kLeastSaved - 1)) break;
    if (!find_bands(step, count)) break;
    choices.push_back(count);
    last = rows;
  }
  return choices;
}

}  // namespace pl

#include "plan/validate_bands.h"

#include <algorithm>

#include "base/error.h"
#include "op/image_rows.h"

namespace pl {
namespace {

// Rows of one band that are right (of an image) or may differ from zero (of an owned value).
struct RowSpan {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  bool within(const RowSpan& other) const {
    return empty() || (other.begin <= begin && end <= other.end);
  }
};

struct State {
  enum Kind : uint8_t { fixed, sample, uniform, image, owned, part, total };
  Kind kind = fixed;
  int64_t rows = 0;             // of the band
  std::vector<int64_t> starts;  // image row of row 0, per band
  std::vector<RowSpan> spans;   // per band
  bool has_rows() const { return kind == uniform || kind == image || kind == owned; }
};

class BandReplay {
 public:
  BandReplay(const Graph& graph, const Loop& loop)
      : graph_(graph), loop_(loop), body_(loop.body), states_(body_.values.size()) {}

  void run() {
    require(loop_.bands > 1 && loop_.trips % loop_.bands == 0, "the trips are no bands");
    require(loop_.samples == 1, "a band is not of one sample");
    require(loop_.stacked.empty() && loop_.carried.empty(), "something outlives a band");
    for (const Loop::In& link : loop_.sliced) load(link);
    for (const Node& node : body_.nodes) {
      at_ = &node;
      play(node);
    }
  }

 private:
  void require(bool holds, const std::string& what) const {
    if (holds) return;
    throw InternalError("[validate] " + what +
                        (at_ ? " at " + at_->op + " (" + at_->path + ")" : "") +
                        " of a loop over bands");
  }
  State& state(ValueId id) { return states_[index(id)]; }
  size_t bands() const { return static_cast<size_t>(loop_.bands); }
  static bool top(const State& s, size_t b) { return s.starts[b] == 0; }
  static bool bottom(const State& s, size_t b) { return s.starts[b] == s.starts.back(); }

  // From the image's first row to its last, every band inside and of one size.
  void load(const Loop::In& link) {
    const Shape &whole = graph_.values[index(link.outer)].meta.shape,
                &part = body_.values[index(link.body)].meta.shape;
    require(whole.rank() > 2 && part.rank() == whole.rank(), "a sliced value is no image");
    const Dim samples = loop_.trips / loop_.bands;
    require(part[0] == 1 && whole[0] == samples, "a band is not of one sample");
    for (int axis = 2; axis < whole.rank(); ++axis)
      require(part[axis] == whole[axis], "a band is not as wide as its image");
    require(link.starts.size() == bands(), "a band has no place");
    for (int64_t start : link.starts)
      require(start >= 0 && start + part[1] <= whole[1], "a slice lies outside of its image");
    State& s = state(link.body);
    s = {State::image, part[1], link.starts, std::vector<RowSpan>(bands(), {0, part[1]})};
    check_starts(s.starts);
    require(s.starts.back() + s.rows == whole[1], "the last band does not end with the image");
  }

  void check_starts(const std::vector<int64_t>& starts) const {
    require(starts.size() == bands() && starts.front() == 0,
            "the first band does not begin with the image");
    require(std::is_sorted(starts.begin(), starts.end()), "bands are out of order");
  }

  void play(const Node& node) {
    RowMask images = 0, owned = 0, parts = 0, totals = 0, samples = 0;
    Metas in;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const State& s = state(node.in[i]);
      const RowMask bit = RowMask{1} << i;
      in.push_back(body_.values[index(node.in[i])].meta);
      if (s.has_rows()) images |= bit;
      if (s.kind == State::owned) owned |= bit;
      if (s.kind == State::part) parts |= bit;
      if (s.kind == State::total) totals |= bit;
      if (s.kind == State::sample) samples |= bit;
    }
    if (node.op == "accumulate") {
      require(totals == 2, "a sum takes what is no term of one band");
      return;
    }
    if (node.op == "place_rows") {
      require(state(node.in[1]).kind == State::image, "a band of no image is kept");
      own_of(node, state(node.in[1]));
      return;
    }
    if (totals) {
      require(get_op(node.op).additive && totals == (RowMask{1} << in.size()) - 1,
              "the term of one band is used for the sum");
      return set_all(node, {State::total, 0, {}, {}});
    }
    if (node.op == "own_rows") return play_own(node);
    const ImageRule rule = image_rule(node.op, in, node.attrs, images, owned | parts);
    if (parts) {
      require(!images && rule.linear_in(parts, in.size()), "the part of one band is used for all");
      return set_sums(node);
    }
    if (!images) return play_plain(node, samples);
    require(rule.kind != ImageRule::mixes, "rows of an image mix");
    require(!owned || rule.linear_in(owned, in.size()), "a gradient is not used in a linear way");
    check_mask(node);
    if (rule.kind == ImageRule::sums)
      play_sums(node, rule, owned);
    else if (owned)
      play_owned(node, rule);
    else
      play_image(node, rule);
  }

  void set_all(const Node& node, const State& s) {
    for (ValueId out : node.out) state(out) = s;
  }
  void set_sums(const Node& node) {
    for (ValueId out : node.out)
      state(out).kind = body_.values[index(out)].rows ? State::part : State::total;
  }

  void play_plain(const Node& node, RowMask samples) {
    for (ValueId out : node.out) {
      const Value& value = body_.values[index(out)];
      require(value.rows || !samples, "samples are summed once for each band");
      const bool spread = (node.op == "broadcast_to" || node.op == "fill") &&
                          value.meta.shape.rank() > 2 && value.meta.shape[1] > 1;
      if (value.rows) state(out).kind = spread ? State::uniform : State::sample;
      if (spread) state(out).rows = value.meta.shape[1];
    }
  }

  void play_own(const Node& node) {
    const State& x = state(node.in[0]);
    require(x.has_rows(), "own rows of what has none");
    State s{State::owned, x.rows, node.attrs.list("starts"), own_of(node, x)};
    state(node.out[0]) = std::move(s);
  }

  // Each row of the image belongs to one band, where it is right.
  std::vector<RowSpan> own_of(const Node& node, const State& x) const {
    const auto &starts = node.attrs.list("starts"), &own = node.attrs.list("own");
    check_starts(starts);
    require(x.kind == State::uniform || x.starts == starts, "own rows are those of another image");
    require(own.size() == bands() + 1 && own.front() == 0 && own.back() == starts.back() + x.rows &&
                std::is_sorted(own.begin(), own.end()),
            "own rows do not make up the image");
    require(node.attrs.integer("height") == own.back(), "an image has another height");
    std::vector<RowSpan> spans;
    for (size_t b = 0; b < bands(); ++b) {
      const RowSpan mine{own[b] - starts[b], own[b + 1] - starts[b]};
      require(mine.within({0, x.rows}), "own rows lie outside of their band");
      if (x.kind != State::uniform)
        require(mine.within(x.spans[b]), "the halo is too small: own rows are not right");
      spans.push_back(mine);
    }
    return spans;
  }

  // Random masks count elements in the whole image.
  void check_mask(const Node& node) {
    const bool chain = node.op == "fused_pointwise" &&
                       node.attrs.text("program").find("dropout") != std::string::npos;
    if (!chain && node.op != "dropout" && node.op != "dropout_gradient") return;
    const State& x = common(node);
    require(node.attrs.has("starts") && node.attrs.list("starts") == x.starts &&
                node.attrs.integer("height") == x.starts.back() + x.rows,
            "a mask is that of other rows");
  }

  // Operands lie side by side. Answers the first that is no uniform one.
  const State& common(const Node& node) {
    const State* first = nullptr;
    for (ValueId in : node.in) {
      const State& s = state(in);
      if (!s.has_rows() || s.kind == State::uniform) continue;
      if (!first) first = &s;
      require(s.starts == first->starts && s.rows == first->rows,
              "bands of two images are not of the same rows");
    }
    require(first != nullptr, "rows that belong to no image");
    return *first;
  }

  // Rows of a node's output, by shape or, where it has no axis for them, as the operands'.
  State output(const Node& node, const ImageRule& rule, const State& in, State::Kind kind) const {
    State out{kind, in.rows, in.starts, std::vector<RowSpan>(bands())};
    if (rule.kind == ImageRule::maps) return out;
    const bool gathers = rule.kind == ImageRule::gathers;
    require(rule.window.in == (gathers ? in.rows : body_.values[index(node.out[0])].meta.shape[1]),
            "a window over other rows");
    out.rows = gathers ? rule.window.out : rule.window.in;
    for (int64_t& start : out.starts) {
      require(!gathers || start % rule.window.stride == 0, "a band is out of step with a stride");
      start = gathers ? start / rule.window.stride : start * rule.window.stride;
    }
    return out;
  }

  void play_image(const Node& node, const ImageRule& rule) {
    const State& x = common(node);
    State out = output(node, rule, x, State::image);
    const WindowAxis& w = rule.window;
    const int64_t reach = (w.kernel - 1) * w.dilation + 1;
    for (size_t b = 0; b < bands(); ++b) {
      RowSpan right{0, x.rows};
      for (ValueId in : node.in)
        if (const State& s = state(in); s.kind == State::image)
          right = {std::max(right.begin, s.spans[b].begin), std::min(right.end, s.spans[b].end)};
      const bool from_top = top(x, b) && right.begin == 0,
                 to_bottom = bottom(x, b) && right.end == x.rows;
      RowSpan& made = out.spans[b] = right;
      if (rule.kind == ImageRule::gathers) {  // rows all of whose window is right, or true padding
        made.begin = from_top ? 0 : over(right.begin + w.before, w.stride);
        made.end = to_bottom ? out.rows : under(right.end + w.before - reach, w.stride) + 1;
      } else if (rule.kind == ImageRule::scatters) {  // rows that only right ones add to
        made.begin = from_top ? 0 : w.stride * (right.begin - 1) + reach - w.before;
        made.end = to_bottom ? out.rows : w.stride * right.end - w.before;
      }
      made = {std::max<int64_t>(made.begin, 0), std::min(made.end, out.rows)};
    }
    set_all(node, out);
  }

  void play_owned(const Node& node, const ImageRule& rule) {
    const State& x = common(node);
    State out = output(node, rule, x, State::owned);
    for (size_t b = 0; b < bands(); ++b) {
      const RowSpan at = support(node, b);
      for (ValueId in : node.in)
        if (const State& s = state(in); s.kind == State::image)
          require(at.within(s.spans[b]),
                  "the halo is too small: a gradient meets rows that are "
                  "not right");
      RowSpan made = at;
      if (rule.kind == ImageRule::scatters) made = window_of(rule.window, at);
      if (rule.kind == ImageRule::gathers) made = at_of(rule.window, at);
      out.spans[b] = inside(out, b, made);
    }
    set_all(node, out);
  }

  void play_sums(const Node& node, const ImageRule& rule, RowMask owned) {
    require(owned != 0, "a sum counts rows that are not the band's own");
    const bool windowed = rule.window.kernel > 0;
    size_t mine = 0;
    while (state(node.in[mine]).kind != State::owned) ++mine;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const State& s = state(node.in[i]);
      if (s.kind != State::image) continue;
      // Of a weight gradient, operand 0 has the finer rows.
      const bool finer = windowed && i == 0 && mine > 0, coarser = windowed && i > 0 && mine == 0;
      for (size_t b = 0; b < bands(); ++b) {
        require(s.starts[b] * (coarser ? rule.window.stride : 1) ==
                    state(node.in[mine]).starts[b] * (finer ? rule.window.stride : 1),
                "bands of two images are not of the same rows");
        RowSpan at = support(node, b);
        if (finer) at = inside(s, b, window_of(rule.window, at));
        if (coarser) at = inside(s, b, at_of(rule.window, at));
        require(at.within(s.spans[b]),
                "the halo is too small: a sum meets rows that are not right");
      }
    }
    set_sums(node);
  }

  RowSpan support(const Node& node, size_t b) {
    RowSpan all;
    for (ValueId in : node.in) {
      const State& s = state(in);
      if (s.kind != State::owned || s.spans[b].empty()) continue;
      all = all.empty()
                ? s.spans[b]
                : RowSpan{std::min(all.begin, s.spans[b].begin), std::max(all.end, s.spans[b].end)};
    }
    return all;
  }

  // Beyond a true edge there is padding; beyond an inner one, rows that the band lacks.
  RowSpan inside(const State& s, size_t b, RowSpan rows) const {
    if (rows.empty()) return {};
    require((rows.begin >= 0 || top(s, b)) && (rows.end <= s.rows || bottom(s, b)),
            "the halo is too small: a gradient leaves its band");
    return {std::max<int64_t>(rows.begin, 0), std::min(rows.end, s.rows)};
  }

  static RowSpan window_of(const WindowAxis& w, const RowSpan& at) {
    if (at.empty()) return {};
    return {at.begin * w.stride - w.before,
            (at.end - 1) * w.stride - w.before + (w.kernel - 1) * w.dilation + 1};
  }
  // Where a window reads any of these rows.
  static RowSpan at_of(const WindowAxis& w, const RowSpan& of) {
    if (of.empty()) return {};
    const int64_t reach = (w.kernel - 1) * w.dilation + 1;
    return {over(of.begin + w.before - reach + 1, w.stride),
            under(of.end - 1 + w.before, w.stride) + 1};
  }
  static int64_t under(int64_t a, int64_t b) { return a < 0 ? -((b - 1 - a) / b) : a / b; }
  static int64_t over(int64_t a, int64_t b) { return -under(-a, b); }

  const Graph& graph_;
  const Loop& loop_;
  const Graph& body_;
  std::vector<State> states_;  // per value of the body
  const Node* at_ = nullptr;
};

}  // namespace

void validate_bands(const Graph& graph, const Loop& loop) { BandReplay(graph, loop).run(); }

}  // namespace pl

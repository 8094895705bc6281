#include "op/recurrent.h"

#include <utility>

#include "graph/graph.h"
#include "op/infer.h"

namespace pl {
namespace {

constexpr std::pair<const char*, Squash> kSquashes[] = {{"linear", Squash::linear},
                                                        {"tanh", Squash::tanh},
                                                        {"sigmoid", Squash::sigmoid},
                                                        {"relu", Squash::relu},
                                                        {"hard_sigmoid", Squash::hard_sigmoid}};

}  // namespace

std::optional<Squash> squash_from_name(std::string_view name) {
  for (const auto& [known, squash] : kSquashes)
    if (name == known) return squash;
  return std::nullopt;
}

Attrs recurrent_attrs(const RecurrentOptions& options) {
  Attrs attrs;
  if (options.activation != "tanh") attrs.set("activation", options.activation);
  if (options.recurrent_activation != "sigmoid")
    attrs.set("recurrent_activation", options.recurrent_activation);
  if (options.backwards) attrs.set("backwards", int64_t{1});
  if (options.backwards && options.flip) attrs.set("flip", int64_t{1});
  return attrs;
}

RecurrentForm recurrent_form(const char* op, const Shape& sequence, Dim units, const Metas& in,
                             const Attrs& attrs) {
  const auto activation = squash_from_name(attrs.text("activation", "tanh"));
  const auto recurrent = squash_from_name(attrs.text("recurrent_activation", "sigmoid"));
  if (!activation || !recurrent)
    reject(op, std::string("activations among ") + kSquashNames, in, attrs);
  return {.batch = sequence[0],
          .steps = sequence[1],
          .units = units,
          .backwards = attrs.integer("backwards", 0) != 0,
          .flip = attrs.integer("flip", 0) != 0,
          .activation = *activation,
          .recurrent_activation = *recurrent};
}

void add_operand(const char* name, const Tensor& tensor, Tensors& in, Attrs& attrs) {
  if (!tensor.defined()) return;
  in.push_back(tensor);
  attrs.set(name, int64_t{1});
}

RecurrentSizes recurrent_sizes(const char* op, Dim gates, const Meta& sequence, const Meta& u,
                               const Metas& in, const Attrs& attrs) {
  const Shape &s = sequence.shape, &w = u.shape;
  if (!is_real(sequence.dtype) || s.rank() != 3 || u.dtype != sequence.dtype || w.rank() != 2 ||
      w[0] < 1 || w[0] > s[2] || s[2] != gates * w[0] || w[1] != gates * w[0]) {
    const std::string width = (gates == 1 ? "" : std::to_string(gates) + " ") + "H";
    reject(op,
           "a sequence (B, T, " + width + ") and weights (H, " + width + ") of one floating dtype",
           in, attrs);
  }
  checked(op, in);
  return {sequence.dtype, s[0], s[1], w[0], gates};
}

void expect_recurrent_meta(const char* op, const char* what, int at, const Meta& meta,
                           const Metas& in, const Attrs& attrs) {
  if (at >= 0 && in[index(at)] != meta)
    reject(op, std::string(what) + " of " + meta.text(), in, attrs);
}

Attrs recurrent_shared_attrs(const Attrs& attrs) {
  Attrs result;
  for (const char* name : {"activation", "recurrent_activation"})
    if (attrs.has(name)) result.set(name, attrs.text(name));
  for (const char* name : {"backwards", "flip", "reset_before"})
    if (attrs.integer(name, 0)) result.set(name, int64_t{1});
  return result;
}

Rows recurrent_rows(RowMask weights, int count, RowMask in) {
  if (!in) return Rows::none;
  return in == (((RowMask{1} << count) - 1) & ~weights) ? Rows::maps : Rows::mixes;
}

Sample recurrent_sample(const RecurrentCase& c) {
  Sample sample{c.name, {}, {}, 1e-5, c.benchmark};
  for (const auto& [name, value] : c.attrs) sample.attrs.set(name, value);
  return sample;
}

SampleInput sample_real(Shape shape, Fill fill) {
  return {{Dtype::float32, std::move(shape)}, fill};
}

void add_recurrent_extras(const RecurrentCase& c, Dim gates, int states, Sample& sample) {
  if (sample.attrs.has("state"))
    for (int i = 0; i < states; ++i) sample.in.push_back(sample_real({c.batch, c.units}));
  if (sample.attrs.has("mask")) sample.in.push_back({{Dtype::boolean, Shape{c.batch, c.steps}}});
  if (sample.attrs.has("dropped"))
    sample.in.push_back(sample_real({c.batch, gates, c.units}, Fill::one_hot));
}

}  // namespace pl

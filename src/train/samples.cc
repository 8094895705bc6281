#include "train/samples.h"

#include <algorithm>

#include "base/error.h"
#include "model/target_shape.h"

namespace pl {

std::vector<const Field*> fields_of(const Source& source, Role role) {
  std::vector<const Field*> list;
  for (const Field& field : source.fields())
    if (field.role == role) list.push_back(&field);
  return list;
}

namespace {

// What the losses want of each target; nothing where any will do. Empty before compile().
std::vector<std::optional<Meta>> wanted_targets(const Network& network, const Compiled& compiled) {
  std::vector<std::optional<Meta>> list;
  const bool settled =
      !compiled.heads.empty() || compiled.loss.function || !compiled.loss.name.empty();
  if (!settled || !network.built()) return list;
  const std::vector<Head> heads = heads_of(compiled, network);
  const std::vector<Shape> outputs = network.output_shapes();
  for (size_t o = 0; o < heads.size(); ++o) {
    if (!heads[o].has_target()) continue;
    if (heads[o].loss) {
      list.push_back(target_meta(*heads[o].loss, outputs[o], compiled.dtype.variable));
    } else {
      list.emplace_back();
    }
  }
  return list;
}

int64_t integer_at(const char* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::int32:
      return reinterpret_cast<const int32_t*>(data)[i];
    case Dtype::int64:
      return reinterpret_cast<const int64_t*>(data)[i];
    default:
      return reinterpret_cast<const uint8_t*>(data)[i];
  }
}

// Throws DataError that names the first sample of a field with a number outside of [0, count) that
// is not `allowed`; read only where the field's range says that there may be one.
void check_below(Source& source, const Field& field, const std::string& what, int64_t count,
                 std::optional<int64_t> allowed = {}) {
  const auto& range = field.range;
  if (!range && !is_floating(field.sample.dtype)) {
    source.require_below(static_cast<size_t>(&field - source.fields().data()), what, count,
                         allowed);
    return;
  }
  if (!range || (range->low >= 0 && range->high < count)) return;
  constexpr int64_t kChunk = 256;
  const Meta& meta = field.sample;
  std::vector<char> rows(static_cast<size_t>(kChunk * meta.bytes()));
  std::vector<void*> places(source.fields().size(), nullptr);
  for (size_t f = 0; f < places.size(); ++f)
    if (&source.fields()[f] == &field) places[f] = rows.data();
  std::vector<int64_t> indices;
  for (int64_t begin = 0; begin < source.size(); begin += kChunk) {
    indices.clear();
    for (int64_t i = begin; i < std::min(begin + kChunk, source.size()); ++i) indices.push_back(i);
    source.read(indices, places);
    for (int64_t e = 0; e < static_cast<int64_t>(indices.size()) * meta.elements(); ++e) {
      const int64_t value = integer_at(rows.data(), meta.dtype, e);
      if ((value >= 0 && value < count) || value == allowed) continue;
      throw DataError("[data] " + source.name() + ": expected " + what + " from 0 to " +
                      std::to_string(count - 1) + ", received " + std::to_string(value) +
                      " in sample " + std::to_string(begin + e / meta.elements()) + "; all are " +
                      std::to_string(range->low) + " to " + std::to_string(range->high));
    }
  }
}

}  // namespace

SampleSpec sample_of(const Source& source, const Network& network, double x_scale) {
  SampleSpec sample{.x = {}, .y = {}, .x_scale = x_scale};
  for (const Field* field : fields_of(source, Role::x)) sample.x.push_back(field->sample);
  for (const Field* field : fields_of(source, Role::y)) sample.y.push_back(field->sample);
  for (const Field* field : fields_of(source, Role::weight))
    sample.weights.push_back(field->sample);
  const auto& inputs = network.input_shapes();
  for (size_t i = 0; i < sample.x.size() && i < inputs.size(); ++i)
    sample.x[i].shape = match_trailing_one(sample.x[i].shape, inputs[i]);
  return sample;
}

SampleSpec sample_like(const SampleSpec& other, const Source& source, const Network& network) {
  SampleSpec sample = sample_of(source, network, other.x_scale);
  for (size_t t = 0; t < sample.y.size() && t < other.y.size(); ++t)
    sample.y[t].shape = match_trailing_one(sample.y[t].shape, other.y[t].shape);
  return sample;
}

void check_labels(Source& source, const Network& network, const Compiled& compiled) {
  const std::vector<Head> heads = heads_of(compiled, network);
  const std::vector<Shape> outputs = network.output_shapes();
  const auto targets = fields_of(source, Role::y);
  size_t next = 0;
  for (size_t o = 0; o < heads.size(); ++o) {
    if (!heads[o].has_target()) continue;
    if (next == targets.size()) return;
    const Field& field = *targets[next++];
    const int64_t classes = heads[o].loss ? target_classes(*heads[o].loss, outputs[o]) : 0;
    if (classes == 0) continue;
    std::optional<int64_t> ignored;
    if (heads[o].loss->options.has("ignore_class"))
      ignored = heads[o].loss->options.integer("ignore_class");
    check_below(source, field, "labels of " + network.output_names()[o], classes, ignored);
  }
}

void check_tokens(Source& source, const Network& network) {
  const auto inputs = fields_of(source, Role::x);
  for (size_t i = 0; i < inputs.size() && i < network.input_shapes().size(); ++i)
    if (const int64_t count = network.vocabulary(i); count > 0 && count != kAnyInteger)
      check_below(source, *inputs[i], "tokens", count);
}

SampleSpec wanted_sample(const Network& network, const Compiled& compiled) {
  SampleSpec sample;
  for (size_t i = 0; i < network.input_shapes().size(); ++i)
    sample.x.push_back({network.vocabulary(i) > 0 ? Dtype::int32 : compiled.dtype.variable,
                        network.input_shapes()[i]});
  const auto targets = wanted_targets(network, compiled);
  const std::vector<Shape> outputs = network.output_shapes();
  for (size_t t = 0; t < targets.size(); ++t)
    sample.y.push_back(targets[t].value_or(Meta{compiled.dtype.variable, outputs.at(t)}));
  return sample;
}

SyntheticSpec synthetic_spec(const Network& network, const Compiled& compiled, int64_t samples,
                             uint64_t seed) {
  const SampleSpec sample = wanted_sample(network, compiled);
  const Meta &x = sample.x.at(0), &y = sample.y.at(0);
  const int64_t vocabulary = network.vocabulary();
  return {.x = x,
          .vocabulary = vocabulary,
          .y = y.shape,
          .classes = network.output_shapes()[0].back(),
          .next_token = vocabulary > 0 && y.shape == x.shape,
          .samples = samples,
          .seed = seed};
}

}  // namespace pl

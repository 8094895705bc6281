#include "train/samples.h"

#include "base/error.h"

namespace pl {

Shape match_trailing_one(const Shape& given, const Shape& wanted) {
  auto is_with_one = [](const Shape& longer, const Shape& shorter) {
    if (longer.rank() != shorter.rank() + 1 || longer.back() != 1) return false;
    for (int axis = 0; axis < shorter.rank(); ++axis)
      if (longer[axis] != shorter[axis]) return false;
    return true;
  };
  return is_with_one(given, wanted) || is_with_one(wanted, given) ? wanted : given;
}

SampleSpec sample_of(const Source& source, const Network& network, const Compiled& compiled,
                     double x_scale) {
  const auto& fields = source.fields();
  SampleSpec sample{.x = fields[0].sample, .y = {}, .x_scale = x_scale};
  if (!network.input_shapes().empty())
    sample.x.shape = match_trailing_one(sample.x.shape, network.input_shapes()[0]);
  if (fields.size() < 2) return sample;
  sample.y = fields[1].sample;
  if (!compiled.loss.name.empty() && network.output_shapes().size() == 1)
    sample.y.shape = match_trailing_one(
        sample.y.shape,
        target_meta(compiled.loss, network.output_shapes()[0], compiled.dtype.variable).shape);
  return sample;
}

namespace {

void check_below(const Source& source, size_t field, const char* what, int64_t count) {
  const auto& range = source.fields()[field].range;
  if (range && (range->low < 0 || range->high >= count))
    throw DataError("[data] " + source.name() + ": expected " + what + " from 0 to " +
                    std::to_string(count - 1) + ", received " + std::to_string(range->low) +
                    " to " + std::to_string(range->high));
}

}  // namespace

void check_labels(const Source& source, int64_t classes) {
  check_below(source, 1, "labels", classes);
}

void check_tokens(const Source& source, const Network& network) {
  if (network.vocabulary() > 0) check_below(source, 0, "tokens", network.vocabulary());
}

SampleSpec wanted_sample(const Network& network, const Compiled& compiled) {
  SampleSpec sample;
  sample.x = {network.vocabulary() > 0 ? Dtype::int32 : compiled.dtype.variable,
              network.input_shapes()[0]};
  if (network.output_shapes().size() == 1)
    sample.y = target_meta(compiled.loss, network.output_shapes()[0], compiled.dtype.variable);
  return sample;
}

SyntheticSpec synthetic_spec(const Network& network, const Compiled& compiled, int64_t samples,
                             uint64_t seed) {
  const SampleSpec sample = wanted_sample(network, compiled);
  const int64_t vocabulary = network.vocabulary();
  return {.x = sample.x,
          .vocabulary = vocabulary,
          .y = sample.y.shape,
          .classes = network.output_shapes()[0].back(),
          .next_token = vocabulary > 0 && sample.y.shape == sample.x.shape,
          .samples = samples,
          .seed = seed};
}

}  // namespace pl

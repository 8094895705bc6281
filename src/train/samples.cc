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
        target_meta(compiled.loss, network.output_shapes()[0], compiled.dtype).shape);
  return sample;
}

void check_labels(const Source& source, int64_t classes) {
  const auto& range = source.fields()[1].range;
  if (range && (range->low < 0 || range->high >= classes))
    throw DataError("[data] " + source.name() + ": expected labels from 0 to " +
                    std::to_string(classes - 1) + ", received " + std::to_string(range->low) +
                    " to " + std::to_string(range->high));
}

}  // namespace pl

#include "model/spatial.h"

#include <algorithm>

#include "base/error.h"

namespace pl {

void expect_positive(const char* layer, const char* what, int64_t value) {
  if (value <= 0)
    throw UserError("[" + std::string(layer) + "] " + what +
                    ": expected a positive number, received " + std::to_string(value));
}

void expect_positive(const char* layer, const char* what, const Pair& values) {
  for (int64_t value : values.value) expect_positive(layer, what, value);
}

void expect_padding(const char* layer, const std::string& padding) {
  if (padding != "valid" && padding != "same")
    throw UserError("[" + std::string(layer) + "] padding: expected 'valid' or 'same', received '" +
                    padding + "'");
}

Dim transposed_size(Dim in, Dim reach, Dim stride, bool same, std::optional<Dim> more) {
  if (!more) return in * stride + (same ? 0 : std::max<Dim>(reach - stride, 0));
  const Dim out = (in - 1) * stride + (same ? reach % 2 : reach) + *more;
  if (same && out <= (in - 1) * stride)
    throw UserError("expected an output_padding above 0 with padding 'same' and a kernel of even " +
                    std::string("size, received ") + std::to_string(*more));
  return out;
}

void expect_output_padding(const char* layer, int64_t more, int64_t stride) {
  if (more < 0 || more >= stride)
    throw UserError("[" + std::string(layer) +
                    "] output_padding: expected a number from 0 and below strides, " +
                    std::to_string(stride) + ", received " + std::to_string(more));
}

const Shape& expect_image(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input, received " + std::to_string(in.size()));
  if (in[0].rank() != 3)
    throw UserError("expected samples (height, width, channels), received " + in[0].text());
  return in[0];
}

std::vector<int64_t> list_of(const Pair& pair) { return {pair.value.begin(), pair.value.end()}; }

std::string text_of(const Pair& pair) {
  return std::to_string(pair.value[0]) + "x" + std::to_string(pair.value[1]);
}

}  // namespace pl

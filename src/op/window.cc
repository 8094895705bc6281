#include "op/window.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace {

// Every size and attribute stays below this, so that sums of products of two stay inside int64.
constexpr Dim kLargest = Dim{1} << 30;

std::vector<int64_t> pair_of(const char* op, const char* name, const Metas& in,
                             const Attrs& attrs) {
  if (!attrs.has(name)) return {1, 1};
  const std::vector<int64_t>& list = attrs.list(name);
  if (list.size() != 2 || std::min(list[0], list[1]) < 1 || std::max(list[0], list[1]) > kLargest)
    reject(op, std::string(name) + " of two integers from 1 to 2^30", in, attrs);
  return list;
}

// [top, bottom, left, right], zeros unless the padding is explicit.
std::vector<int64_t> pads_of(const char* op, const std::string& padding, const Metas& in,
                             const Attrs& attrs) {
  if (padding != "explicit") return {0, 0, 0, 0};
  const std::vector<int64_t> pads = attrs.has("pads") ? attrs.list("pads") : std::vector<int64_t>{};
  if (pads.size() != 4 || *std::min_element(pads.begin(), pads.end()) < 0 ||
      *std::max_element(pads.begin(), pads.end()) > kLargest)
    reject(op, "pads of four integers from 0 to 2^30", in, attrs);
  return pads;
}

}  // namespace

Window window_of(const char* op, Dim height, Dim width, Dim kernel_height, Dim kernel_width,
                 const Metas& in, const Attrs& attrs) {
  const std::string padding = attrs.text("padding", "valid");
  if (padding != "valid" && padding != "same" && padding != "explicit")
    reject(op, "padding 'valid', 'same' or 'explicit'", in, attrs);
  const auto pads = pads_of(op, padding, in, attrs);
  const auto strides = pair_of(op, "strides", in, attrs);
  const auto dilations = pair_of(op, "dilations", in, attrs);
  auto axis = [&](Dim size, Dim kernel, size_t i) {
    if (size < 1 || size > kLargest) reject(op, "images of 1 to 2^30 rows and columns", in, attrs);
    if (kernel < 1 || kernel > kLargest)
      reject(op, "windows of 1 to 2^30 rows and columns", in, attrs);
    WindowAxis a{size, 0, kernel, strides[i], dilations[i], 0, 0};
    const Dim reach = (kernel - 1) * a.dilation + 1;  // from the first to the last position read
    if (padding != "same") {
      a.before = pads[2 * i];
      a.after = pads[2 * i + 1];
      if (std::max(a.before, a.after) >= reach)
        reject(op, "pads smaller than the window", in, attrs);
      const Dim padded = a.before + size + a.after;
      if (reach > padded) reject(op, "images at least as large as the window", in, attrs);
      a.out = (padded - reach) / a.stride + 1;
    } else {
      a.out = (size + a.stride - 1) / a.stride;
      const Dim pad = std::max<Dim>(0, (a.out - 1) * a.stride + reach - size);
      a.before = pad / 2;
      a.after = pad - a.before;
    }
    return a;
  };
  return {axis(height, kernel_height, 0), axis(width, kernel_width, 1)};
}

std::vector<int64_t> explicit_pads(const Window& window) {
  return {window.h.before, window.h.after, window.w.before, window.w.after};
}

Shape input_shape_of(const char* op, Dim rows, const Metas& in, const Attrs& attrs) {
  const std::vector<int64_t>& dims = attrs.list("input_shape");
  if (dims.size() != 4) reject(op, "an input_shape of four dimensions", in, attrs);
  return Shape{rows, dims[1], dims[2], dims[3]};
}

}  // namespace pl

// mixup and cutmix: images of a batch with each other's.
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "data/image/augment.h"
#include "data/image/image_rows.h"

namespace pl {
namespace {

struct BatchFacts {
  int64_t rows, height, width, channels;
  int64_t image() const { return height * width * channels; }
};

BatchFacts batch_facts(const char* function, const Element& batch, int64_t classes) {
  const auto fail = [&](const std::string& received) {
    throw UserError(
        "[data] " + std::string(function) +
        ": expected a batch of images (B, H, W, C) of uint8 or float32 and labels (B,) or "
        "(B, classes), received " +
        received + "; it goes behind batch()");
  };
  if (batch.size() < 2) fail(std::to_string(batch.size()) + " fields");
  const Shape& x = batch[0].shape();
  const Shape& y = batch[1].shape();
  const bool kind = batch[0].dtype() == Dtype::uint8 || batch[0].dtype() == Dtype::float32;
  if (!kind || x.rank() != 4) fail("images " + batch[0].meta().text());
  const bool numbers =
      y.rank() == 1 && (batch[1].dtype() == Dtype::int32 || batch[1].dtype() == Dtype::int64);
  const bool shares = y.rank() == 2 && y[1] == classes && batch[1].dtype() == Dtype::float32;
  if ((!numbers && !shares) || y[0] != x[0]) fail("labels " + batch[1].meta().text());
  if (classes < 1) fail(std::to_string(classes) + " classes");
  return {x[0], x[1], x[2], x[3]};
}

// Labels as shares (B, classes).
Tensor shares_of(const char* function, const Tensor& labels, int64_t classes) {
  if (labels.shape().rank() == 2) return labels;
  const int64_t rows = labels.shape()[0];
  const Tensor out(Meta{Dtype::float32, Shape{rows, classes}});
  std::memset(out.data(), 0, static_cast<size_t>(out.meta().bytes()));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t label = labels.dtype() == Dtype::int32 ? labels.data_as<int32_t>()[r]
                                                         : labels.data_as<int64_t>()[r];
    if (label < 0 || label >= classes)
      throw DataError("[data] " + std::string(function) + ": expected labels from 0 to " +
                      std::to_string(classes - 1) + ", received " + std::to_string(label));
    out.data_as<float>()[r * classes + label] = 1;
  }
  return out;
}

std::vector<int64_t> partners(int64_t rows, Chance& chance) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = rows - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(chance.below(i + 1))]);
  return order;
}

// Row r: share of its own, the rest of its partner's.
Tensor mixed_labels(const Tensor& shares, const std::vector<int64_t>& with, double own) {
  const Tensor out(shares.meta());
  const int64_t classes = shares.shape()[1];
  const float* from = shares.data_as<float>();
  for (size_t r = 0; r < with.size(); ++r)
    for (int64_t c = 0; c < classes; ++c)
      out.data_as<float>()[static_cast<int64_t>(r) * classes + c] =
          static_cast<float>(own * from[static_cast<int64_t>(r) * classes + c] +
                             (1 - own) * from[with[r] * classes + c]);
  return out;
}

Element with_rest(const Element& batch, Tensor x, Tensor y) {
  Element out{std::move(x), std::move(y)};
  out.insert(out.end(), batch.begin() + 2, batch.end());
  return out;
}

}  // namespace

Element mixup(const Element& batch, int64_t classes, Chance& chance, double alpha) {
  const BatchFacts facts = batch_facts("mixup", batch, classes);
  const Tensor shares = shares_of("mixup", batch[1], classes);
  const double own = alpha > 0 ? chance.beta(alpha) : 1;
  const std::vector<int64_t> with = partners(facts.rows, chance);
  const Tensor x(batch[0].meta());
  with_pixels(x, [&]<class T>() {
    for (int64_t r = 0; r < facts.rows; ++r) {
      const T* a = batch[0].data_as<T>() + r * facts.image();
      const T* b = batch[0].data_as<T>() + with[static_cast<size_t>(r)] * facts.image();
      T* to = x.data_as<T>() + r * facts.image();
      for (int64_t i = 0; i < facts.image(); ++i)
        to[i] =
            to_pixel<T>(own * static_cast<double>(a[i]) + (1 - own) * static_cast<double>(b[i]));
    }
  });
  return with_rest(batch, x, mixed_labels(shares, with, own));
}

Element cutmix(const Element& batch, int64_t classes, Chance& chance, double alpha) {
  const BatchFacts facts = batch_facts("cutmix", batch, classes);
  const Tensor shares = shares_of("cutmix", batch[1], classes);
  const double side = std::sqrt(1 - (alpha > 0 ? chance.beta(alpha) : 1));
  const std::vector<int64_t> with = partners(facts.rows, chance);
  // A rectangle around a point of the image, cut at its edges; the labels' shares are its area's.
  const auto range = [&](int64_t size) {
    const int64_t middle = chance.below(size);
    const auto half = static_cast<int64_t>(side * static_cast<double>(size) / 2);
    return std::pair{std::max<int64_t>(0, middle - half), std::min(size, middle + half)};
  };
  const auto [top, bottom] = range(facts.height);
  const auto [left, right] = range(facts.width);
  const double cut = static_cast<double>((bottom - top) * (right - left)) /
                     static_cast<double>(facts.height * facts.width);
  const Tensor x(batch[0].meta());
  std::memcpy(x.data(), batch[0].data(), static_cast<size_t>(x.meta().bytes()));
  const size_t number = x.dtype() == Dtype::uint8 ? 1 : 4;
  for (int64_t r = 0; r < facts.rows; ++r)
    for (int64_t y = top; y < bottom; ++y) {
      const auto at = [&](int64_t image) {
        return static_cast<size_t>(image * facts.image() +
                                   (y * facts.width + left) * facts.channels) *
               number;
      };
      std::memcpy(x.data_as<char>() + at(r),
                  batch[0].data_as<char>() + at(with[static_cast<size_t>(r)]),
                  static_cast<size_t>((right - left) * facts.channels) * number);
    }
  return with_rest(batch, x, mixed_labels(shares, with, 1 - cut));
}

}  // namespace pl

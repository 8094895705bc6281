#include "model/unet.h"

#include "base/error.h"
#include "model/layers.h"

namespace pl {
namespace {

// Names are NAME_conv1 and NAME_conv2.
Symbolic two_convolutions(Symbolic x, int64_t channels, const std::string& name) {
  for (const char* which : {"_conv1", "_conv2"})
    x = Conv2D(channels, 3,
               {.padding = "same",
                .activation = "relu",
                .kernel_initializer = "he_normal",
                .name = name + which})(x);
  return x;
}

}  // namespace

Symbolic unet(const UnetConfig& config, const Symbolic& image, int64_t classes) {
  const Shape& shape = image.shape();
  const Dim multiple = Dim{1} << config.levels;
  if (shape.rank() != 3 || shape[0] <= 0 || shape[1] <= 0 || shape[0] % multiple != 0 ||
      shape[1] % multiple != 0)
    throw UserError("[unet] expected images (H, W, C) with H and W multiples of " +
                    std::to_string(multiple) + ", received " + shape.text() +
                    "; give such a size, --input HxWxC");
  Symbolic x = image;
  std::vector<Symbolic> skips;
  int64_t channels = config.channels;
  for (int level = 1; level <= config.levels; ++level, channels *= 2) {
    const std::string name = "down" + std::to_string(level);
    skips.push_back(two_convolutions(x, channels, name));
    x = MaxPooling2D(2, {.name = name + "_pool"})(skips.back());
  }
  x = two_convolutions(x, channels, "bottom");
  for (int level = config.levels; level >= 1; --level) {
    channels /= 2;
    const std::string name = "up" + std::to_string(level);
    const Symbolic larger =
        Conv2DTranspose(channels, 2, {.strides = 2, .name = name + "_transpose"})(x);
    x = Concatenate(-1, name + "_concat")({larger, skips[static_cast<size_t>(level - 1)]});
    x = two_convolutions(x, channels, name);
  }
  return Conv2D(classes, 1, {.activation = "softmax", .name = "head"})(x);
}

}  // namespace pl

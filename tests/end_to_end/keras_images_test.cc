// Small networks of layers over images through the C++ face, against Keras in float64, and what the
// layers refuse. tests/golden/keras_images.py made the answers and says what the networks are for.
#include <gtest/gtest.h>

#include "base/error.h"
#include "plimsoll.h"
#include "tests/keras_answers.h"

namespace pl::test::keras_images_test {
namespace {

constexpr const char* kAnswers = "keras_images.json";
constexpr double kWithLimits = 1e-6;  // Keras rounds max_value and its like to float32

Symbolic softmax_head(const Symbolic& x, int64_t classes) {
  return Dense(classes, {.activation = "softmax", .name = "head"})(x);
}

Model convolutions() {
  const Symbolic x = Input({9, 8, 3});
  Symbolic h = ZeroPadding2D({{1, 2}, {0, 3}}, "pad")(x);
  h = Conv2D(6, 3, {.strides = 2, .activation = "relu", .name = "strided"})(h);
  h = DepthwiseConv2D(3, {.padding = "same", .depth_multiplier = 2, .name = "depthwise"})(h);
  h = ReLU({.max_value = 0.4, .name = "clipped"})(h);
  h = DepthwiseConv2D({3, 2},
                      {.strides = 2, .padding = "same", .use_bias = false, .name = "halved"})(h);
  h = Conv2D(4, {2, 3},
             {.padding = "same", .dilation_rate = {2, 1}, .groups = 2, .name = "grouped"})(h);
  h = ZeroPadding2D({1, 0}, "rows")(LeakyReLU(0.3, "leaky")(h));
  return Model(x, softmax_head(GlobalAveragePooling2D({.name = "mean"})(h), 3));
}

Model pools() {
  const Symbolic x = Input({7, 9, 4});
  const Symbolic a = MaxPooling2D(3, {.strides = 2, .padding = "same", .name = "max"})(x);
  const Symbolic b =
      AveragePooling2D({3, 2}, {.strides = 2, .padding = "same", .name = "average"})(x);
  Symbolic h = Concatenate(-1, "cat")({a, b});
  h = SeparableConv2D(5, 3, {.padding = "same", .activation = "silu", .name = "separable"})(h);
  h = UpSampling2D({1, 2}, {.name = "nearest"})(h);
  h = Conv2DTranspose(3, 3,
                      {.strides = 2, .padding = "same", .activation = "elu", .name = "same"})(h);
  h = Conv2DTranspose(4, {2, 3},
                      {.strides = {3, 2}, .activation = "leaky_relu", .name = "valid"})(h);
  h = MaxPooling2D({2, 3}, {.strides = 1, .name = "dense_max"})(h);
  h = UpSampling2D({2, 3}, {.interpolation = "bilinear", .name = "bilinear"})(h);
  h = AveragePooling2D(2, {.name = "halves"})(h);
  h = GlobalMaxPooling2D({.keepdims = true, .name = "largest"})(h);
  return Model(x, softmax_head(Flatten("flat")(h), 3));
}

Model rectifiers() {
  const Symbolic x = Input({6, 6, 5});
  Symbolic h = Conv2D(7, 1, {.name = "one"})(x);
  h = ReLU({.max_value = 0.8, .negative_slope = 0.25, .threshold = 0.125, .name = "bent"})(h);
  h = MaxPooling2D(3, {.strides = 2, .name = "padded"})(ZeroPadding2D(1, "zeros")(h));
  h = Conv2D(6, 1, {.strides = 2, .name = "two"})(h);
  h = ReLU({.negative_slope = 0.5, .name = "half"})(h);
  h = Conv2D(6, 2, {.padding = "same", .name = "three"})(h);
  h = GlobalAveragePooling2D({.keepdims = true, .name = "mean"})(Activation("relu6", "six")(h));
  return Model(x, Conv2D(4, 1, {.activation = "softmax", .name = "head"})(h));
}

TEST(KerasImages, PaddedStridedDilatedGroupedAndDepthwiseConvolutions) {
  expect_agreement(kAnswers, 0, convolutions(), real(kInputSalt, {kBatch, 9, 8, 3}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithLimits);
}

TEST(KerasImages, PoolsSeparableAndTransposedConvolutionsAndUpsampling) {
  expect_agreement(kAnswers, 1, pools(), real(kInputSalt, {kBatch, 7, 9, 4}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithoutNorm);
}

TEST(KerasImages, RectifiersAndPaddingInFrontOfAPool) {
  expect_agreement(kAnswers, 2, rectifiers(), real(kInputSalt, {kBatch, 6, 6, 5}, 0),
                   integers(kLabelSalt, {kBatch, 1, 1}, 4), kWithLimits);
}

// ---- what is refused

template <class Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(KerasImages, SayWhichArgumentIsWrong) {
  auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(refusal([] {
              ZeroPadding2D({1, -1});
            }),
            "[ZeroPadding2D] padding: expected numbers from 0, received -1");
  EXPECT_EQ(refusal([] { AveragePooling2D(0); }),
            "[AveragePooling2D] pool_size: expected a positive number, received 0");
  EXPECT_EQ(refusal([] {
              MaxPooling2D(2, {.strides = {1, -2}});
            }),
            "[MaxPooling2D] strides: expected a positive number, received -2");
  EXPECT_EQ(refusal([] { Conv2DTranspose(4, 3, {.padding = "full"}); }),
            "[Conv2DTranspose] padding: expected 'valid' or 'same', received 'full'");
  EXPECT_EQ(refusal([] { DepthwiseConv2D(3, {.depth_multiplier = 0}); }),
            "[DepthwiseConv2D] depth_multiplier: expected a positive number, received 0");
  EXPECT_EQ(refusal([] { SeparableConv2D(-3, 3); }),
            "[SeparableConv2D] filters: expected a positive number, received -3");
  EXPECT_EQ(
      refusal([] { UpSampling2D(2, {.interpolation = "cubic"}); }),
      "[UpSampling2D] interpolation: expected nearest, bilinear, bicubic, lanczos3 or lanczos5, "
      "received 'cubic'");
  EXPECT_TRUE(has(refusal([] { ReLU({.max_value = -1}); }), "[ReLU] max_value: expected"));
  EXPECT_TRUE(has(refusal([] { ReLU({.threshold = -1}); }), "[ReLU] threshold: expected"));
  EXPECT_TRUE(has(refusal([] { LeakyReLU(-0.5); }), "[LeakyReLU] negative_slope: expected"));
}

TEST(KerasImages, SayWhichInputIsWrong) {
  auto on = [](LayerRef layer, Shape shape) {
    return refusal([&] { Model(Input(shape), layer(Input(shape))); });
  };
  for (const LayerRef& layer : {GlobalAveragePooling2D(), ZeroPadding2D(), UpSampling2D(),
                                Conv2DTranspose(4, 3), DepthwiseConv2D(3), SeparableConv2D(4, 3)}) {
    const std::string text = on(layer, {7, 5});
    EXPECT_NE(text.find("expected samples (height, width, channels), received (7, 5)"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(on(DepthwiseConv2D(5), {4, 4, 2}).find("at least as large as the window"),
            std::string::npos);
  EXPECT_NE(on(AveragePooling2D(3), {2, 8, 1}).find("at least as large as the window"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::test::keras_images_test

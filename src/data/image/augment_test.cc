// Image functions against tf.image (tests/golden/image_ops.py made the answers), and what must hold
// of those that tf.image has not.
#include "data/image/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "base/json.h"
#include "data/pipeline/dataset.h"
#include "tests/counter_hash.h"
#include "tests/data_files.h"

namespace pl::augment_test {
namespace {

Tensor bytes_image(uint32_t salt, const Shape& shape) {
  Tensor image(Meta{Dtype::uint8, shape});
  for (int64_t i = 0; i < shape.elements(); ++i)
    image.data_as<uint8_t>()[i] = static_cast<uint8_t>(test::hashed(salt, i) % 256);
  return image;
}

Tensor real_image(const Tensor& bytes, float unit) {
  Tensor image(Meta{Dtype::float32, bytes.shape()});
  for (int64_t i = 0; i < bytes.shape().elements(); ++i)
    image.data_as<float>()[i] = static_cast<float>(bytes.data_as<uint8_t>()[i]) / unit;
  return image;
}

const Json& answers() {
  static const Json json =
      parse_json(test::read_bytes(::pl::test::golden("image_ops.json")), "image_ops.json");
  return json;
}

std::vector<Dim> dims(const Json& list) {
  std::vector<Dim> out;
  for (const Json& one : list.as_array("sizes")) out.push_back(one.as_integer("size"));
  return out;
}

void expect_bytes_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.meta(), b.meta());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.meta().bytes())), 0);
}

TEST(ImageOps, ResizeAsTensorFlowDoes) {
  for (const Json& one : answers().at("resize", "answers").as_array("resize")) {
    const Shape shape(dims(one.at("in", "case")));
    const std::vector<Dim> out = dims(one.at("out", "case"));
    const std::string name = one.at("method", "case").as_string("method");
    const auto method = name == "area"      ? ResizeMethod::area
                        : name == "bicubic" ? ResizeMethod::bicubic
                                            : ResizeMethod::bilinear;
    const bool antialias = one.at("antialias", "case") == Json(true);
    const Tensor bytes =
        bytes_image(static_cast<uint32_t>(one.at("salt", "case").as_integer("salt")), shape);
    const Tensor real = resize_image(real_image(bytes, 1), {out[0], out[1]}, method, antialias);
    const Tensor whole = resize_image(bytes, {out[0], out[1]}, method, antialias);
    // TensorFlow reads that filter from a table of 1024 entries.
    const double tolerance = method == ResizeMethod::bicubic && !antialias ? 0.2 : 2e-3;
    const auto& want = one.at("y", "case").as_array("y");
    ASSERT_EQ(real.shape().elements(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const double y = want[i].as_real("y");
      EXPECT_NEAR(real.data_as<float>()[i], y, tolerance)
          << name << antialias << shape.text() << " " << i;
      EXPECT_NEAR(whole.data_as<uint8_t>()[i], std::clamp(y, 0.0, 255.0), 0.51 + tolerance);
    }
  }
}

TEST(ImageOps, ColoursAsTensorFlowDoes) {
  const Tensor bytes = bytes_image(20, {4, 5, 3}), real = real_image(bytes, 255);
  for (const Json& one : answers().at("color", "answers").as_array("color")) {
    const std::string name = one.at("name", "case").as_string("name");
    const double amount = one.at("amount", "case").as_real("amount");
    const auto change = [&](const Tensor& image) {
      if (name == "brightness") return adjust_brightness(image, amount);
      if (name == "contrast") return adjust_contrast(image, amount);
      if (name == "saturation") return adjust_saturation(image, amount);
      return adjust_hue(image, amount);
    };
    const Tensor got_bytes = change(bytes), got = change(real);
    for (size_t i = 0; i < 60; ++i) {
      const int64_t whole = one.at("bytes", "case").as_array("bytes")[i].as_integer("byte");
      // A number that lies between two bytes may fall to either.
      EXPECT_NEAR(got_bytes.data_as<uint8_t>()[i], static_cast<double>(whole), 1) << name << amount;
      EXPECT_NEAR(got.data_as<float>()[i],
                  one.at("reals", "case").as_array("reals")[i].as_real("real"), 2e-6)
          << name << amount << " " << i;
    }
  }
}

TEST(ImageOps, RotatesAsTensorFlowDoes) {
  for (const Json& one : answers().at("rotate", "answers").as_array("rotate")) {
    const Shape shape(dims(one.at("in", "case")));
    const Tensor bytes =
        bytes_image(static_cast<uint32_t>(one.at("salt", "case").as_integer("salt")), shape);
    const Tensor turned =
        rotate_image(real_image(bytes, 1), one.at("angle", "case").as_real("angle"),
                     one.at("fill", "case").as_real("fill"));
    const auto& want = one.at("y", "case").as_array("y");
    ASSERT_EQ(turned.shape().elements(), static_cast<int64_t>(want.size()));
    // Places are float32 there.
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(turned.data_as<float>()[i], want[i].as_real("y"), 2e-3)
          << shape.text() << " " << i;
  }
}

TEST(ImageOps, CropFlipPadAndRotateMoveWholePixels) {
  const Tensor image = bytes_image(3, {5, 5, 3});
  const uint8_t* x = image.data_as<uint8_t>();
  const Tensor part = crop_image(image, 1, 2, {3, 2});
  EXPECT_EQ(part.shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(part.data_as<uint8_t>()[0], x[(1 * 5 + 2) * 3]);
  EXPECT_EQ(part.data_as<uint8_t>()[17], x[(3 * 5 + 3) * 3 + 2]);
  expect_bytes_equal(flip_left_right(flip_left_right(image)), image);
  expect_bytes_equal(flip_up_down(flip_up_down(image)), image);
  EXPECT_EQ(flip_left_right(image).data_as<uint8_t>()[1], x[4 * 3 + 1]);
  EXPECT_EQ(flip_up_down(image).data_as<uint8_t>()[1], x[4 * 5 * 3 + 1]);
  expect_bytes_equal(crop_image(pad_image(image, 2), 2, 2, {5, 5}), image);
  EXPECT_EQ(pad_image(image, 2).data_as<uint8_t>()[0], 0);
  expect_bytes_equal(rotate_image(image, 0), image);
  // A quarter turn against the clock: the upper right corner comes to the upper left one.
  const Tensor turned = rotate_image(image, std::numbers::pi / 2);
  EXPECT_EQ(turned.data_as<uint8_t>()[0], x[4 * 3]);
  expect_bytes_equal(rotate_image(turned, -std::numbers::pi / 2), image);
  const Tensor corner = rotate_image(bytes_image(3, {9, 9, 3}), std::numbers::pi / 4, 9);
  EXPECT_EQ(corner.data_as<uint8_t>()[0], 9) << "from outside";
}

TEST(ImageOps, RandomOnesAreFunctionsOfTheirNumber) {
  const Tensor image = bytes_image(4, {20, 30, 3});
  const auto all = [&](uint64_t seed) {
    Chance chance(seed);
    Tensor out = random_resized_crop(image, {12, 12}, chance);
    out = color_jitter(random_flip(out, chance), chance);
    return random_rotation(random_crop(out, {8, 9}, chance), 0.3, chance);
  };
  expect_bytes_equal(all(7), all(7));
  EXPECT_NE(std::memcmp(all(7).data(), all(8).data(), 8 * 9 * 3), 0);
  Chance chance(1);
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double b = chance.beta(0.2);
    ASSERT_TRUE(b >= 0 && b <= 1);
    sum += b, squares += b * b;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
  EXPECT_NEAR(squares / 20000 - 0.25, 0.25 / 1.4, 0.01)
      << "the variance of Beta(a, a): 1/(4(2a+1))";
}

TEST(ImageOps, NormalizeGivesFloats) {
  const Tensor image = bytes_image(5, {2, 2, 3});
  const Tensor out = normalize_image(image, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  EXPECT_EQ(out.dtype(), Dtype::float32);
  EXPECT_NEAR(out.data_as<float>()[4], (image.data_as<uint8_t>()[4] / 255.0 - 0.456) / 0.224, 1e-5);
}

TEST(ImageOps, MixesLabelsAsItMixesImages) {
  Element batch{bytes_image(6, {4, 6, 8, 3}), Tensor(Meta{Dtype::int32, Shape{4}})};
  for (int32_t i = 0; i < 4; ++i) batch[1].data_as<int32_t>()[i] = i;
  // One-hot labels name the partner; the pixels must be made of the same two with the same shares.
  for (uint64_t seed = 1; seed < 6; ++seed) {
    Chance a(seed), b(seed);
    const Element mixed = mixup(batch, 4, a, 1.0), cut = cutmix(batch, 4, b);
    for (int64_t r = 0; r < 4; ++r) {
      const float* shares = mixed[1].data_as<float>() + r * 4;
      double expected = 0, sum = 0;
      for (int64_t c = 0; c < 4; ++c) {
        expected += static_cast<double>(shares[c]) * batch[0].data_as<uint8_t>()[c * 144 + 77];
        sum += static_cast<double>(shares[c]);
      }
      EXPECT_NEAR(sum, 1, 1e-6);
      EXPECT_NEAR(mixed[0].data_as<uint8_t>()[r * 144 + 77], expected, 0.51);
      int64_t own = 0;
      for (int64_t p = 0; p < 48; ++p)
        own += std::memcmp(cut[0].data_as<uint8_t>() + r * 144 + p * 3,
                           batch[0].data_as<uint8_t>() + r * 144 + p * 3, 3) == 0;
      EXPECT_NEAR(cut[1].data_as<float>()[r * 4 + r], static_cast<double>(own) / 48, 1e-6);
    }
  }
}

TEST(ImageOps, RunInPipelines) {
  const Tensor images = bytes_image(9, {10, 16, 16, 3});
  Tensor labels(Meta{Dtype::int32, Shape{10}});
  for (int32_t i = 0; i < 10; ++i) labels.data_as<int32_t>()[i] = i % 3;
  const auto data =
      Dataset::from_tensor_slices({images, labels})
          .map_random([](const Element& e, uint64_t number) {
            Chance chance(number);
            return Element{random_flip(random_crop(e[0], {12, 12}, chance), chance), e[1]};
          })
          .batch(5)
          .map_random([](const Element& e, uint64_t number) {
            Chance chance(number);
            return mixup(e, 3, chance);
          });
  int64_t batches = 0;
  for (const Element& batch : data) {
    EXPECT_EQ(batch[0].shape(), (Shape{5, 12, 12, 3}));
    EXPECT_EQ(batch[1].shape(), (Shape{5, 3}));
    ++batches;
  }
  EXPECT_EQ(batches, 2);
}

TEST(ImageOps, RefuseWhatIsNoImage) {
  const auto fails = [](const std::function<void()>& action, const std::string& part) {
    try {
      action();
      ADD_FAILURE() << "expected an error: " << part;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const Tensor grey = bytes_image(1, {4, 4, 1}), flat = bytes_image(1, {4, 4});
  fails([&] { flip_left_right(flat); },
        "flip_left_right: expected an image (height, width, channels)");
  fails([&] { adjust_hue(grey, 0.1); }, "adjust_hue: expected three channels, received 1");
  fails([&] { crop_image(grey, 1, 1, {4, 4}); }, "received 4x4 at 1, 1; resize or pad it first");
  fails([&] { resize_image(grey, {0, 4}); }, "expected a size of 1 to");
  fails([&] { normalize_image(grey, {0, 0}, {1}); }, "mean: expected 1 or 1 numbers, received 2");
  Chance chance(1);
  fails([&] { mixup({grey}, 3, chance); }, "received 1 fields; it goes behind batch()");
}

}  // namespace
}  // namespace pl::augment_test

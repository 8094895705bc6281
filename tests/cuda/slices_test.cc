// Parts of a batch and bands of images begin wherever their dtype allows: kernels that take several
// elements at a time must know. The numbers are those of whole batches, and the processor's.
#include <cmath>
#include <cstdlib>
#include <functional>

#include "plimsoll.h"
#include "tests/cuda/device_test.h"
#include "tests/patterns.h"

namespace pl::slices_test {
namespace {

using test::pattern;

class CudaSlices : public CudaTest {
 protected:
  void SetUp() override {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
    CudaTest::SetUp();
  }
};

Tensor bytes(const Shape& shape) {
  Tensor x({Dtype::uint8, shape});
  for (int64_t i = 0; i < shape.elements(); ++i)
    x.data_as<uint8_t>()[i] = static_cast<uint8_t>(i * 7919 % 251);
  return x;
}

using Layers = std::vector<LayerRef>;

struct Case {
  std::function<Layers()> layers;
  Tensor x, y;
  int64_t batch = 1, parts = 1;
  Policy dtype = Dtype::float32;
  std::string loss = "mse";
};

// Losses of three epochs.
std::vector<double> train(const Case& c, const std::string& where, int64_t parts) {
  Sequential model(c.layers());
  const Shape sample = c.x.shape().without_front();
  model.build(sample);
  model.compile({.optimizer = SGD({.learning_rate = 0.05}),
                 .loss = c.loss,
                 .dtype = c.dtype,
                 .device = where});
  const double x_scale = c.x.dtype() == Dtype::uint8 ? 1.0 / 255 : 1.0;
  const History history = model.fit(c.x, c.y,
                                    {.batch_size = c.batch,
                                     .epochs = 3,
                                     .verbose = 0,
                                     .shuffle = false,
                                     .split = parts,
                                     .seed = 3,
                                     .threads = 2,
                                     .x_scale = x_scale});
  return history.history.at("loss");
}

void expect_equal(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(std::isfinite(a[i]));
    EXPECT_NEAR(a[i], b[i], tolerance * std::fabs(b[i])) << "epoch " << i;
  }
}

void expect_same_training(const Case& c) {
  const double tolerance = c.dtype == Policy(Dtype::float32) ? 1e-4 : 2e-2;
  const std::vector<double> there = train(c, "cuda", c.parts);
  expect_equal(there, train(c, "cuda", 1), tolerance);
  expect_equal(there, train(c, "cpu", 1), tolerance);
}

Layers pooled() {
  return {Conv2D(8, 3, {.padding = "same", .activation = "relu"}), MaxPooling2D(2),
          Conv2D(2, 3, {.padding = "same"})};
}

// The second band begins behind two rows of 322 pixels and 3 channels: at byte 1,932 or so.
TEST_F(CudaSlices, BandsOfBytes) {
  for (const Policy dtype : {Policy(Dtype::float32), kMixedBfloat16, kMixedFloat16})
    expect_same_training({.layers = pooled,
                          .x = bytes({2, 46, 322, 3}),
                          .y = pattern({2, 23, 161, 2}, 1),
                          .parts = 4,
                          .dtype = dtype});
}

// Rows of 7 or 21 floats: targets, images and their squares.
TEST_F(CudaSlices, BandsOfOddRows) {
  for (const int64_t channels : {1, 3})
    for (const Policy dtype : {Policy(Dtype::float32), kMixedBfloat16})
      expect_same_training({.layers =
                                [=] {
                                  return Layers{
                                      Conv2D(8, 3, {.padding = "same", .activation = "relu"}),
                                      Conv2D(channels, 3, {.padding = "same"})};
                                },
                            .x = pattern({1, 40, 7, channels}, 1),
                            .y = pattern({1, 40, 7, channels}, 2),
                            .parts = 5,
                            .dtype = dtype});
}

// One tap: the library's matrix product reads the slice itself.
TEST_F(CudaSlices, BandsForProducts) {
  expect_same_training(
      {.layers =
           [] {
             return Layers{Conv2D(8, 1, {.activation = "relu"}), Conv2D(1, 3, {.padding = "same"})};
           },
       .x = pattern({1, 40, 5, 3}, 1),
       .y = pattern({1, 40, 5, 1}, 2),
       .parts = 4});
}

TEST_F(CudaSlices, PartsOf13x13) {
  for (const Policy dtype : {Policy(Dtype::float32), kMixedBfloat16})
    for (const bool convolution : {false, true}) {
      Case c{.layers =
                 [=] {
                   Layers layers{Flatten(), Dense(9, {.activation = "tanh"}), Dense(3)};
                   if (convolution)
                     layers.insert(layers.begin(), Conv2D(4, 3, {.activation = "relu"}));
                   return layers;
                 },
             .x = pattern({8, 13, 13, 1}, 1),
             .y = pattern({8, 3}, 2),
             .batch = 8,
             .parts = 8,
             .dtype = dtype};
      expect_same_training(c);
    }
}

// Labels of one sample lie at multiples of four bytes: the head's products are no slower for it.
TEST_F(CudaSlices, LabelsOfOneSample) {
  Tensor y({Dtype::int32, {8}});
  for (int i = 0; i < 8; ++i) y.data_as<int32_t>()[i] = i % 3;
  expect_same_training(
      {.layers =
           [] {
             return Layers{Dense(16, {.activation = "gelu"}), Dense(3, {.activation = "softmax"})};
           },
       .x = pattern({8, 5}, 1),
       .y = y,
       .batch = 8,
       .parts = 8,
       .loss = "sparse_categorical_crossentropy"});
}

}  // namespace
}  // namespace pl::slices_test

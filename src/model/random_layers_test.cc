// Random layers: what they do does not depend on how the batch is split, has the distribution that
// Keras gives it, and is nothing when not training.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl::random_layers_test {
namespace {

// Ops on values need a backend.
class EagerTest : public ::testing::Test {
  CpuBackend backend_{1};
  BackendScope scope_{backend_};
};

Tensor params_of(int64_t step, int64_t row_offset = 0) {
  StepParams params{.step = step, .seed = 99, .row_offset = row_offset};
  Tensor tensor(step_params_meta());
  std::memcpy(tensor.data(), &params, sizeof params);
  return tensor;
}

Tensor counted(const Shape& shape) {
  Tensor x({Dtype::float32, shape});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(i % 251) / 16 - 4;
  return x;
}

Tensor called(const LayerRef& layer, const Tensor& x, bool training, int64_t step = 1,
              int64_t row_offset = 0) {
  layer->build({x.shape().without_front()});
  const Tensor params = params_of(step, row_offset);
  const std::vector<Tensor> in{x};
  return layer->call({in, {}, training, params, 1234});
}

bool same_bits(const Tensor& a, const void* b) {
  return std::memcmp(a.data(), b, static_cast<size_t>(a.meta().bytes())) == 0;
}

std::vector<std::pair<LayerRef, Shape>> layers() {
  return {{RandomFlip(), {4, 5, 2}},
          {RandomCrop(3, 4), {6, 7, 2}},
          {RandomRotation(0.3), {4, 5, 2}},
          {RandomTranslation(0.3, {-0.2, 0.5}, {.fill_mode = "constant"}), {4, 5, 2}},
          {RandomZoom(0.4), {4, 5, 2}},
          {GaussianNoise(0.5), {3, 7}},
          {GaussianDropout(0.3), {3, 7}},
          {AlphaDropout(0.3), {3, 7}},
          {SpatialDropout1D(0.5), {3, 7}},
          {SpatialDropout2D(0.5), {3, 2, 7}}};
}

class RandomLayers : public EagerTest {};
TEST_F(RandomLayers, DoTheSameToPartsOfABatch) {
  for (const auto& [layer, sample] : layers()) {
    SCOPED_TRACE(layer->kind());
    const Tensor x = counted(sample.with_front(6)), whole = called(layer, x, true);
    EXPECT_TRUE(same_bits(whole, called(layer, x, true).data()));
    EXPECT_FALSE(same_bits(whole, called(layer, x, true, 2).data())) << "the next step's";
    for (int64_t part : {0, 1, 2}) {
      Tensor two({Dtype::float32, sample.with_front(2)});
      std::memcpy(two.data(), x.data_as<char>() + part * two.meta().bytes(),
                  static_cast<size_t>(two.meta().bytes()));
      const Tensor made = called(layer, two, true, 1, 2 * part);
      EXPECT_TRUE(same_bits(made, whole.data_as<char>() + part * made.meta().bytes())) << part;
    }
  }
}

TEST_F(RandomLayers, AreOffWhenNotTraining) {
  for (const auto& [layer, sample] : layers()) {
    SCOPED_TRACE(layer->kind());
    if (std::string(layer->kind()) == "RandomCrop") continue;
    const Tensor x = counted(sample.with_front(3));
    EXPECT_TRUE(same_bits(x, called(layer, x, false).data()));
  }
  // The largest window in the middle of the wanted shape, resized: here 4 of 4 rows, 3 of 5
  // columns.
  const Tensor x = counted({1, 4, 5, 1}), y = called(RandomCrop(4, 3), x, false);
  EXPECT_EQ(y.shape(), (Shape{1, 4, 3, 1}));
  EXPECT_EQ(y.data_as<float>()[0], x.data_as<float>()[1]);
}

TEST_F(RandomLayers, FlipHalfOfTheImagesBothWaysAtOnce) {
  const Tensor x = counted({2000, 1, 2, 1});
  const Tensor y = called(RandomFlip(), x, true);
  int flipped = 0;
  for (int64_t b = 0; b < 2000; ++b) {
    const float *from = x.data_as<float>() + 2 * b, *to = y.data_as<float>() + 2 * b;
    flipped += to[0] == from[1] && to[1] == from[0];
  }
  EXPECT_NEAR(flipped, 1000, 90);  // four deviations
}

TEST_F(RandomLayers, CropEveryImageOfABatchAtOnePlace) {
  const Tensor x = counted({5, 6, 7, 1});
  std::vector<int> places(4 * 4, 0);
  for (int64_t step = 1; step <= 400; ++step) {
    const Tensor y = called(RandomCrop(3, 4), x, true, step);
    int found = -1;
    for (int top = 0; top < 4 && found < 0; ++top)
      for (int left = 0; left < 4 && found < 0; ++left) {
        bool equal = true;
        for (int64_t i = 0; i < 5 * 12; ++i) {
          const int64_t b = i / 12, row = i / 4 % 3, col = i % 4;
          equal = equal &&
                  y.data_as<float>()[i] == x.data_as<float>()[(b * 6 + top + row) * 7 + left + col];
        }
        if (equal) found = top * 4 + left;
      }
    ASSERT_GE(found, 0) << "step " << step;
    ++places[static_cast<size_t>(found)];
  }
  for (int count : places) EXPECT_NEAR(count, 25, 20);
}

// A quarter turn about the middle moves pixels onto pixels: row y, column x is taken from row x,
// column 3 - y (Keras: x' = cos x - sin y + ..., y' = sin x + cos y + ...).
TEST_F(RandomLayers, TurnAboutTheMiddle) {
  const Tensor x = counted({1, 4, 4, 1});
  const Tensor y = called(RandomRotation({0.25, 0.25}), x, true);
  for (int row = 0; row < 4; ++row)
    for (int col = 0; col < 4; ++col)
      EXPECT_NEAR(y.data_as<float>()[row * 4 + col], x.data_as<float>()[col * 4 + 3 - row], 1e-4)
          << row << " " << col;
}

struct Moments {
  double mean, variance;
};
Moments moments_of(const Tensor& x) {
  double sum = 0, squares = 0;
  const int64_t n = x.meta().elements();
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(x.data_as<float>()[i]);
    sum += value;
    squares += value * value;
  }
  return {sum / static_cast<double>(n),
          squares / static_cast<double>(n) - sum * sum / static_cast<double>(n * n)};
}

TEST_F(RandomLayers, NoiseHasItsMoments) {
  const Shape shape{200, 300};
  const Tensor ones = fill(shape, 1);
  const Moments plus = moments_of(called(GaussianNoise(0.5), ones, true));
  EXPECT_NEAR(plus.mean, 1, 0.01);
  EXPECT_NEAR(plus.variance, 0.25, 0.01);
  const Moments times = moments_of(called(GaussianDropout(0.2), ones, true));
  EXPECT_NEAR(times.mean, 1, 0.01);
  EXPECT_NEAR(times.variance, 0.25, 0.01);
  // AlphaDropout keeps mean 0 and variance 1.
  const Tensor normal = draw(shape, params_of(3), 77);
  const Moments alpha = moments_of(called(AlphaDropout(0.3), normal, true));
  EXPECT_NEAR(alpha.mean, 0, 0.02);
  EXPECT_NEAR(alpha.variance, 1, 0.03);
  const Moments uniform =
      moments_of(draw(shape, params_of(1), 5, {.distribution = "uniform", .a = -1, .b = 3}));
  EXPECT_NEAR(uniform.mean, 1, 0.02);
  EXPECT_NEAR(uniform.variance, 16.0 / 12, 0.03);
}

TEST_F(RandomLayers, DropoutWithANoiseShapeDropsTogether) {
  // (B, 4, 5): one draw for the 4 rows of a sample; then one for all samples.
  const Tensor y =
      called(Dropout(0.5, DropoutOptions{.noise_shape = {0, 1, 5}}), fill({30, 4, 5}, 1), true);
  const Tensor z =
      called(Dropout(0.5, DropoutOptions{.noise_shape = {1, 4, 0}}), fill({30, 4, 5}, 1), true);
  bool differ = false, dropped = false;
  for (int64_t b = 0; b < 30; ++b)
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t c = 0; c < 5; ++c) {
        const float at = y.data_as<float>()[(b * 4 + r) * 5 + c];
        EXPECT_EQ(at, y.data_as<float>()[b * 20 + c]);
        EXPECT_TRUE(at == 0 || at == 2);
        differ = differ || at != y.data_as<float>()[c];
        dropped = dropped || at == 0;
        EXPECT_EQ(z.data_as<float>()[(b * 4 + r) * 5 + c], z.data_as<float>()[r * 5 + c]);
      }
  EXPECT_TRUE(differ && dropped);
  EXPECT_THROW(Dropout(0.5, DropoutOptions{.noise_shape = {0, 3, 1}})(Input({4, 5})), UserError);
}

TEST_F(RandomLayers, SpatialDropoutDropsWholeChannels) {
  const Tensor y = called(SpatialDropout2D(0.25), fill({40, 3, 2, 50}, 1), true);
  int dropped = 0;
  for (int64_t b = 0; b < 40; ++b)
    for (int64_t c = 0; c < 50; ++c) {
      const float first = y.data_as<float>()[b * 300 + c];
      EXPECT_TRUE(first == 0 || std::fabs(first - 1 / 0.75f) < 1e-6f);
      dropped += first == 0;
      for (int64_t p = 1; p < 6; ++p) EXPECT_EQ(y.data_as<float>()[b * 300 + p * 50 + c], first);
    }
  EXPECT_NEAR(dropped, 500, 80);
}

}  // namespace
}  // namespace pl::random_layers_test

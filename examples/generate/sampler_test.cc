#include "examples/generate/sampler.h"

#include <gtest/gtest.h>

namespace pl::sampler_test {
namespace {

TEST(Sampler, DrawsTheLikeliestAtZeroAndAmongTheBestK) {
  const float logits[] = {0.5f, 2.0f, 1.0f, -1.0f};
  std::mt19937_64 random(1);
  EXPECT_EQ(draw_token(logits, 4, {.temperature = 0}, random), 1);
  EXPECT_EQ(draw_token(logits, 1, {}, random), 0) << "only tokens that are characters";
  int counts[4] = {};
  for (int i = 0; i < 4000; ++i) ++counts[draw_token(logits, 4, {.top_k = 2}, random)];
  EXPECT_EQ(counts[0] + counts[3], 0);
  // e / (1 + e) of the draws.
  EXPECT_NEAR(counts[1] / 4000.0, 0.731, 0.03);
  int flat[4] = {};
  for (int i = 0; i < 4000; ++i) ++flat[draw_token(logits, 4, {.temperature = 1e6}, random)];
  for (int count : flat) EXPECT_NEAR(count / 4000.0, 0.25, 0.03);
}

TEST(Sampler, GeneratesWhatASmallModelLearned) {
  constexpr int64_t kWindow = 6;
  const std::string characters = "abc";
  const Symbolic in = Input({kWindow});
  Model model(in, gpt({1, 16, 2, 4}, in));
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = Loss{"sparse_categorical_crossentropy", true}});
  Tensor x({Dtype::int32, {3, kWindow}}), y({Dtype::int32, {3, kWindow}});
  for (int i = 0; i < 3 * kWindow; ++i) {
    x.data_as<int32_t>()[i] = (i / kWindow + i % kWindow) % 3;
    y.data_as<int32_t>()[i] = (i / kWindow + i % kWindow + 1) % 3;
  }
  model.fit(x, y, {.epochs = 60, .verbose = 0, .threads = 1});
  EXPECT_EQ(generate(model, kWindow, characters, "b", 10, {.temperature = 0}), "cabcabcabc");
  // Longer than the window, and the same again from the same seed.
  const SamplerOptions options{.temperature = 2, .seed = 5};
  const std::string drawn = generate(model, kWindow, characters, "abcabcabc", 20, options);
  EXPECT_EQ(drawn.size(), 20u);
  EXPECT_EQ(drawn, generate(model, kWindow, characters, "abcabcabc", 20, options));
  EXPECT_THROW(generate(model, kWindow, characters, "x", 1, {}), UserError);
  EXPECT_THROW(generate(model, kWindow, characters, "", 1, {}), UserError);
}

}  // namespace
}  // namespace pl::sampler_test

// --dtype mixed_bfloat16 and mixed_float16: one step beside float64's, the promise, and a processor
// that multiplies no bfloat16.
#include <algorithm>
#include <cmath>

#include "tests/end_to_end/first_step.h"
#include "tests/setting.h"

namespace pl::test::mixed_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* batch;
  const char* input;  // "": the model's own
  // The length of the gradients' error at most, relative to theirs: twice what was seen, since
  // other instructions sum in other orders. A rounded number near 0 goes the other way through a
  // relu or a pool, and normalisation over few pixels divides by what is left.
  double error;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"Mlp", "mlp", "32", "", 0.1},
    {"MnistCnn", "mnist-cnn", "16", "", 0.12},
    {"SmallCnn", "small-cnn", "8", "", 0.12},
    {"GptTiny", "gpt-tiny", "2", "64", 0.02},
    {"Resnet18", "resnet18", "8", "64x64x3", 0.8},
    {"Unet", "unet", "2", "32x32x3", 0.06},
};

constexpr double kLossTolerance = 5e-3;  // relative

Words words(const char* command, const Case& c, Words more) {
  Words list{command, c.model, "--batch", c.batch, "--json"};
  if (*c.input) list.insert(list.end(), {"--input", c.input});
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

FirstStep first(const Case& c, const char* dtype) {
  return first_step(words("train", c, {"--dtype", dtype}));
}

class Mixed : public ::testing::TestWithParam<Case> {};

// A step rounds to 16 bits, wherever it does, and no more than that.
TEST_P(Mixed, AStepIsThatOfFloat64Rounded) {
  const FirstStep exact = first(GetParam(), "float64"),
                  narrow = first(GetParam(), "mixed_bfloat16");
  EXPECT_NEAR(narrow.loss / exact.loss, 1, kLossTolerance);
  const double error = gradient_error(narrow.gradients, exact.gradients);
  std::printf("loss %.2g, gradients %.3g of their length from float64's\n",
              narrow.loss / exact.loss - 1, error);
  EXPECT_LT(error, GetParam().error);
  EXPECT_GT(error, 1e-3) << "nothing was rounded";
  // Instructions for bfloat16 err as float32 kernels on widened operands do.
  const Setting setting("PLIMSOLL_SIMD", "avx512");
  const double widened =
      gradient_error(first(GetParam(), "mixed_bfloat16").gradients, exact.gradients);
  EXPECT_LT(error, 2 * widened);
}

// Without its instructions float32 kernels work on widened operands. Beside rounding to 16 bits,
// float32 is exact, and faster than float64.
TEST_P(Mixed, TrainsOnAProcessorWithoutBfloat16) {
  const FirstStep exact = first(GetParam(), "float32");
  const Setting setting("PLIMSOLL_SIMD", "avx2");
  const FirstStep narrow = first(GetParam(), "mixed_bfloat16");
  EXPECT_NEAR(narrow.loss / exact.loss, 1, kLossTolerance);
  EXPECT_LT(gradient_error(narrow.gradients, exact.gradients), GetParam().error);
}

TEST_P(Mixed, GivesTheSameBitsAtEveryBudget) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const Words dtype{"--dtype", "mixed_bfloat16", "--split", "off"};
  const Json asked = plimsoll(words("plan", GetParam(), dtype)).lines().at(0);
  const int64_t most =
      asked.at("unlimited", "plan").at("process_bytes", "unlimited").as_integer("process_bytes");
  const int64_t least = integer_at(asked, "minimum_bytes");
  std::string state;
  for (int i = 0; i < 3; ++i) {
    Words more = dtype;
    more.insert(more.end(),
                {"--steps", "2", "--memory", std::to_string(most - (most - least) * i / 2)});
    const Finished done = plimsoll_measured(words("train", GetParam(), more));
    ASSERT_EQ(done.exit, 0) << done.err;
    const Json plan = done.event("plan"), end = done.event("end");
    const std::string hash = end.at("state_xxh3", "end").as_string("state_xxh3");
    if (i == 0) state = hash;
    EXPECT_EQ(hash, state);
    EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
    EXPECT_EQ(end.at("heap_allocations_per_step", "end").as_real("allocations"), 0);
    const Bytes planned = integer_at(plan, "process_bytes");
    EXPECT_LE(done.peak, planned) << "over by " << (done.peak - planned) / kKiB << " KiB";
    EXPECT_GE(done.peak, planned - std::max(planned / 50, 2 * kMiB))
        << "below by " << (planned - done.peak) / kKiB << " KiB";
  }
}

INSTANTIATE_TEST_SUITE_P(Train, Mixed, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MixedPolicy, TakesHalfOfTheActivations) {
  auto activations = [](const char* dtype) {
    const Finished done = plimsoll({"plan", "gpt-tiny", "--batch", "8", "--json", "--split", "off",
                                    "--recompute", "off", "--dtype", dtype});
    EXPECT_EQ(done.exit, 0) << done.err;
    const Json plan = done.lines().at(0);
    return integer_at(plan.at("categories", "plan"), "activations");
  };
  const auto narrow = static_cast<double>(activations("mixed_bfloat16"));
  const auto wide = static_cast<double>(activations("float32"));
  EXPECT_GT(narrow / wide, 0.4);
  EXPECT_LT(narrow / wide, 0.6);
}

TEST(MixedPolicy, OfFloat16ScalesTheLoss) {
  for (const Case& c : {kCases[0], kCases[1]}) {
    const FirstStep exact = first(c, "float64"), narrow = first(c, "mixed_float16");
    EXPECT_NEAR(narrow.loss / exact.loss, 1, kLossTolerance);
    const double error = gradient_error(narrow.gradients, exact.gradients);
    EXPECT_LT(error, c.error);
    EXPECT_GT(error, 1e-4) << "nothing was rounded";
  }
}

}  // namespace
}  // namespace pl::test::mixed_test

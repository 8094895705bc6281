// --dtype mixed_bfloat16 and mixed_float16: losses beside float32's, the promise, and a processor
// that multiplies no bfloat16.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/end_to_end/command.h"

namespace pl::test::mixed_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* batch;
  const char* input;          // "": the model's own
  const char* rate = "2e-4";  // of learning
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"Mlp", "mlp", "32", ""},
    {"MnistCnn", "mnist-cnn", "16", ""},
    {"SmallCnn", "small-cnn", "8", ""},
    {"GptTiny", "gpt-tiny", "2", "64"},
    {"Resnet18", "resnet18", "8", "64x64x3", "2e-6"},
    {"Unet", "unet", "2", "32x32x3"},
};

constexpr double kTolerance = 2e-2;  // of a loss, relative to float32's

Words words(const char* command, const Case& c, Words more) {
  Words list{command, c.model, "--batch", c.batch, "--json"};
  if (*c.input) list.insert(list.end(), {"--input", c.input});
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

std::vector<double> losses(const Case& c, Words more) {
  more.insert(more.end(), {"--steps", "10", "--learning-rate", c.rate});
  const Finished done = plimsoll(words("train", c, more));
  EXPECT_EQ(done.exit, 0) << done.err;
  std::vector<double> list;
  for (const Json& line : done.lines())
    if (line.at("event", "line") == Json("step"))
      list.push_back(line.at("loss", "step").as_real("loss"));
  EXPECT_EQ(list.size(), 10u);
  return list;
}

void expect_close(const std::vector<double>& narrow, const std::vector<double>& wide) {
  ASSERT_EQ(narrow.size(), wide.size());
  double worst = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    worst = std::max(worst, std::fabs(narrow[i] / wide[i] - 1));
    EXPECT_NEAR(narrow[i] / wide[i], 1, kTolerance) << "step " << i + 1 << ": " << narrow[i];
  }
  EXPECT_NE(narrow, wide) << "nothing was rounded";
  ::testing::Test::RecordProperty("largest_relative_difference", std::to_string(worst));
}

// Sets a variable of the environment while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

class Mixed : public ::testing::TestWithParam<Case> {};

TEST_P(Mixed, LossesAreThoseOfFloat32) {
  expect_close(losses(GetParam(), {"--dtype", "mixed_bfloat16"}), losses(GetParam(), {}));
}

// Without its instructions float32 kernels work on widened operands.
TEST_P(Mixed, TrainsOnAProcessorWithoutBfloat16) {
  const Environment isa("DNNL_MAX_CPU_ISA", "AVX2");
  expect_close(losses(GetParam(), {"--dtype", "mixed_bfloat16"}), losses(GetParam(), {}));
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
  for (const Case& c : {kCases[0], kCases[1]})
    expect_close(losses(c, {"--dtype", "mixed_float16"}), losses(c, {}));
}

}  // namespace
}  // namespace pl::test::mixed_test

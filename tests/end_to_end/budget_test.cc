// One model at many budgets: the budget changes time and memory, never a bit of the result.
#include <algorithm>

#include "tests/end_to_end/command.h"

namespace pl::test::budget_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* batch;
  const char* steps;
  const char* input = nullptr;  // the model's default
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"MlpB256", "mlp", "256", "3"},
    {"MnistCnnB32", "mnist-cnn", "32", "3"},
    {"SmallCnnB32", "small-cnn", "32", "2"},
    {"GptTinyB4", "gpt-tiny", "4", "2"},
    {"LstmB16", "lstm", "16", "2"},
    {"SlowGptTinyB32", "gpt-tiny", "32", "1"},
    {"Resnet18B8", "resnet18", "8", "2", "64x64x3"},
    {"UnetB8", "unet", "8", "1", "64x64x3"},
    {"Densenet121B8", "densenet121", "8", "1", "64x64x3"},
};

double real_at(const Json& object, const char* key) { return object.at(key, "plan").as_real(key); }

std::string text_at(const Json& object, const char* key) {
  return object.at(key, "event").as_string(key);
}

// Five budgets from what it takes without limit down to the least.
std::vector<int64_t> budgets(const Json& asked) {
  const int64_t most =
      asked.at("unlimited", "plan").at("process_bytes", "unlimited").as_integer("process_bytes");
  const int64_t least = integer_at(asked, "minimum_bytes");
  std::vector<int64_t> list;
  for (int i = 0; i < 5; ++i) list.push_back(most - (most - least) * i / 4);
  return list;
}

class Budgets : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  }
  Words words(const char* command, Words more) const {
    Words list{command, GetParam().model, "--batch", GetParam().batch, "--json"};
    if (GetParam().input) list.insert(list.end(), {"--input", GetParam().input});
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }
  Json plan(Words more = {}) const {
    const Finished done = plimsoll(words("plan", std::move(more)));
    EXPECT_EQ(done.exit, 0) << done.err;
    const std::vector<Json> lines = done.lines();
    return lines.empty() ? Json() : lines[0];
  }
};

TEST_P(Budgets, GiveTheSameBits) {
  const Json asked = plan({"--split", "off"});
  std::string state;
  double before = 0;
  for (int64_t budget : budgets(asked)) {
    const Finished done =
        plimsoll_measured(words("train", {"--steps", GetParam().steps, "--split", "off", "--memory",
                                          std::to_string(budget)}));
    ASSERT_EQ(done.exit, 0) << done.err;
    const Json plan = done.event("plan"), end = done.event("end");
    if (state.empty()) state = text_at(end, "state_xxh3");
    EXPECT_EQ(text_at(end, "state_xxh3"), state) << "at " << budget;
    EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
    EXPECT_EQ(integer_at(plan, "split"), 1);
    const Bytes planned = integer_at(plan, "process_bytes");
    EXPECT_LE(planned, budget);
    EXPECT_LE(done.peak, planned) << "over by " << (done.peak - planned) / kKiB << " KiB";
    EXPECT_GE(done.peak, planned - std::max(planned / 50, 2 * kMiB))
        << "below by " << (planned - done.peak) / kKiB << " KiB";
    EXPECT_GE(real_at(plan, "step_ms"), before) << "less memory, and predicted to be faster";
    before = real_at(plan, "step_ms");
  }
}

TEST_P(Budgets, MaySplitTheBatch) {
  const Json asked = plan();
  const std::vector<int64_t> list = budgets(asked);
  for (int64_t budget : {list[list.size() / 2], list.back()}) {
    const Finished done = plimsoll_measured(
        words("train", {"--steps", GetParam().steps, "--memory", std::to_string(budget)}));
    ASSERT_EQ(done.exit, 0) << done.err;
    const Json plan = done.event("plan"), end = done.event("end");
    EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
    const Bytes planned = integer_at(plan, "process_bytes");
    EXPECT_LE(planned, budget);
    EXPECT_LE(done.peak, planned) << "over by " << (done.peak - planned) / kKiB << " KiB";
    EXPECT_GE(done.peak, planned - std::max(planned / 50, 2 * kMiB))
        << "below by " << (planned - done.peak) / kKiB << " KiB";
  }
}

TEST_P(Budgets, BelowTheLeastAreRefusedWithACertificate) {
  const Json asked = plan();
  const int64_t least = integer_at(asked, "minimum_bytes"),
                bound = integer_at(asked, "bound_bytes");
  EXPECT_LE(bound, least);
  EXPECT_LE(least, bound + bound / 4);
  const Finished done = plimsoll(words("plan", {"--memory", std::to_string(least - 1)}));
  EXPECT_EQ(done.exit, 3);
  const Json refused = done.lines().at(0);
  const auto& remedies = refused.at("remedies", "plan").as_array("remedies");
  ASSERT_FALSE(remedies.empty());
  EXPECT_EQ(remedies.back().at("change", "remedy").as_string("change"),
            "--memory " + std::to_string(least));
}

INSTANTIATE_TEST_SUITE_P(Train, Budgets, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// The search for the largest batch within a budget looks at batches that a library cannot count.
TEST(Plan, LooksAtHugeBatches) {
  EXPECT_EQ(plimsoll({"plan", "resnet18", "--input", "64x64x3", "--memory", "184MiB"}).exit, 0);
  EXPECT_EQ(plimsoll({"plan", "resnet18", "--input", "64x64x3", "--batch", "1073741824"}).exit, 0);
}

}  // namespace
}  // namespace pl::test::budget_test

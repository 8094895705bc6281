// The promise, seen from outside the process: what was planned is what is used.
#include <algorithm>

#include "tests/end_to_end/command.h"

namespace pl::test::memory_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* batch;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"MlpB32", "mlp", "32"},
    {"MlpB256", "mlp", "256"},
    {"MnistCnnB32", "mnist-cnn", "32"},
    {"MnistCnnB256", "mnist-cnn", "256"},
    {"SmallCnnB32", "small-cnn", "32"},
    {"SlowSmallCnnB256", "small-cnn", "256"},
    {"SlowMnistCnnB2048", "mnist-cnn", "2048"},
    {"SlowMlpB2048", "mlp", "2048"},
    {"SlowSmallCnnB2048", "small-cnn", "2048"},
};

Json plan(Words arguments) {
  arguments.insert(arguments.begin(), "plan");
  arguments.push_back("--json");
  const Finished done = plimsoll(arguments);
  EXPECT_EQ(done.signal, 0);
  const std::vector<Json> lines = done.lines();
  EXPECT_EQ(lines.size(), 1u) << done.err;
  return lines.empty() ? Json() : lines[0];
}

Words train_words(const Case& c, Words more = {}) {
  const char* steps = std::string(c.name).starts_with("Slow") ? "3" : "5";
  Words words{"train", c.model, "--batch", c.batch, "--steps", steps, "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Never above the plan, and not far below it.
void expect_near(Bytes peak, Bytes planned) {
  EXPECT_LE(peak, planned) << "over by " << (peak - planned) / kKiB << " KiB";
  EXPECT_GE(peak, planned - std::max(planned / 50, 2 * kMiB))
      << "below by " << (planned - peak) / kKiB << " KiB";
}

class Memory : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  }
};

TEST_P(Memory, IsUsedAsPlanned) {
  const Finished done = plimsoll_measured(train_words(GetParam()));
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json plan = done.event("plan"), end = done.event("end");
  ASSERT_TRUE(plan.is_object() && end.is_object());
  EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
  EXPECT_EQ(integer_at(end, "arena_bytes_planned"), integer_at(plan, "arena_bytes"));
  EXPECT_EQ(integer_at(end, "process_bytes_planned"), integer_at(plan, "process_bytes"));
  EXPECT_EQ(end.at("heap_allocations_per_step", "end").as_real("allocations"), 0);
  const Bytes planned = integer_at(plan, "process_bytes");
  expect_near(done.peak, planned);
  EXPECT_LE(integer_at(end, "process_bytes_peak"), done.peak + kMiB);
  RecordProperty("peak_below_plan_kib", static_cast<int>((planned - done.peak) / kKiB));
}

TEST_P(Memory, OfThePlanIsEnoughToTrain) {
  const int64_t minimum =
      integer_at(plan({GetParam().model, "--batch", GetParam().batch}), "minimum_bytes");
  const Json asked =
      plan({GetParam().model, "--batch", GetParam().batch, "--memory", std::to_string(minimum)});
  const Finished done =
      plimsoll_measured(train_words(GetParam(), {"--memory", std::to_string(minimum)}));
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_LE(done.peak, minimum);
  const Json again = done.event("plan");
  for (const char* key : {"process_bytes", "fixed_bytes", "arena_bytes", "lower_bound_bytes",
                          "minimum_bytes", "bound_bytes", "persistent_bytes"})
    EXPECT_EQ(integer_at(again, key), integer_at(asked, key)) << key << ": plan and train differ";
}

INSTANTIATE_TEST_SUITE_P(Models, Memory, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MemoryOfTenRuns, IsTheSameWithinAMebibyte) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const int64_t minimum = integer_at(plan({"mlp"}), "minimum_bytes");
  Bytes least = 0, most = 0;
  for (int run = 0; run < 10; ++run) {
    const Finished done = plimsoll_measured(
        {"train", "mlp", "--steps", "3", "--json", "--memory", std::to_string(minimum)});
    ASSERT_EQ(done.exit, 0) << "run " << run << ": " << done.err;
    least = run == 0 ? done.peak : std::min(least, done.peak);
    most = std::max(most, done.peak);
  }
  EXPECT_LE(most - least, kMiB);
}

TEST(MemoryOfADataset, IsUsedAsPlanned) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  // 70 samples at batch 32: two whole batches and a smaller one.
  const ::pl::test::TempCache folder;
  std::string x(70 * 784, '\0'), y;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<char>(i * 37 % 251);
  for (int i = 0; i < 70; ++i) y += ::pl::test::little(static_cast<uint64_t>(i % 10), 4);
  const std::string file = ::pl::test::write_bytes(
      folder / "images.npz",
      ::pl::test::zip({{"x.npy", ::pl::test::npy_of("|u1", "(70, 28, 28)", x)},
                       {"y.npy", ::pl::test::npy_of("<i4", "(70,)", y)}}));
  const Words words{"mnist-cnn", "--data", file, "--batch", "32"};
  const int64_t minimum = integer_at(plan(words), "minimum_bytes");
  Words training = words;
  training.insert(training.begin(), "train");
  for (const std::string& word : {std::string("--epochs"), std::string("3"), std::string("--json"),
                                  std::string("--memory"), std::to_string(minimum)})
    training.push_back(word);
  const Finished done = plimsoll_measured(training);
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json end = done.event("end");
  EXPECT_EQ(integer_at(end, "steps"), 9);
  EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
  EXPECT_EQ(end.at("heap_allocations_per_step", "end").as_real("allocations"), 0);
  expect_near(done.peak, minimum);
}

// ---- too small a budget

TEST(TooSmallABudget, SaysWhatWouldFitAndItDoes) {
  const Words words{"mnist-cnn", "--batch", "256"};
  const int64_t minimum = integer_at(plan(words), "minimum_bytes");
  for (const int64_t budget : {minimum - 1, minimum - 10 * kMiB, int64_t{1 * kMiB}}) {
    SCOPED_TRACE("budget " + std::to_string(budget));
    const Finished done = plimsoll(
        {"plan", "mnist-cnn", "--batch", "256", "--json", "--memory", std::to_string(budget)});
    EXPECT_EQ(done.exit, 3);
    const std::vector<Json> lines = done.lines();
    ASSERT_EQ(lines.size(), 1u) << "the object is printed all the same";
    const Json& answer = lines[0];
    EXPECT_EQ(answer.at("fits", "plan"), Json(false));
    EXPECT_EQ(integer_at(answer, "budget_bytes"), budget);
    EXPECT_EQ(integer_at(answer, "minimum_bytes"), minimum);
    EXPECT_LE(integer_at(answer, "bound_bytes"), minimum);
    EXPECT_GT(integer_at(answer, "bound_bytes"), 0);
    EXPECT_NE(done.err.find(std::to_string(minimum)), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("conv2d"), std::string::npos) << "no layer path in: " << done.err;

    const auto& remedies = answer.at("remedies", "plan").as_array("remedies");
    ASSERT_FALSE(remedies.empty());
    bool memory = false;
    for (const Json& remedy : remedies)
      memory =
          memory || remedy.at("change", "remedy") == Json("--memory " + std::to_string(minimum));
    EXPECT_TRUE(memory) << "--memory N is always among the remedies";

    // Follow the first one.
    const std::string change = remedies[0].at("change", "remedy").as_string("change");
    const size_t blank = change.find(' ');
    ASSERT_NE(blank, std::string::npos) << change;
    const std::string option = change.substr(0, blank), value = change.substr(blank + 1);
    Words again{"train", "mnist-cnn", "--steps", "2", "--json"};
    for (const Words& pair : {Words{"--batch", "256"}, {"--memory", std::to_string(budget)}}) {
      again.push_back(pair[0]);
      again.push_back(pair[0] == option ? value : pair[1]);
    }
    if (kSanitized) continue;
    const Finished fixed = plimsoll(again);
    EXPECT_EQ(fixed.exit, 0) << change << ": " << fixed.err;
    EXPECT_EQ(integer_at(fixed.event("plan"), "process_bytes"),
              integer_at(remedies[0], "process_bytes"));
  }
}

TEST(TooSmallABudget, StopsTrainingBeforeTheFirstStep) {
  const Finished done = plimsoll({"train", "mlp", "--memory", "8MiB", "--json"});
  EXPECT_EQ(done.exit, 3);
  EXPECT_TRUE(done.event("plan").is_object());
  EXPECT_TRUE(done.event("step").is_null());
  EXPECT_TRUE(done.event("end").is_null());
  EXPECT_NE(done.err.find("--memory"), std::string::npos) << done.err;
}

TEST(TooSmallASystem, IsRefusedBeforeTheFirstStep) {
  const Finished done = plimsoll({"train", "mnist-cnn", "--batch", "2000000000", "--json"});
  EXPECT_EQ(done.exit, 3) << done.err;
  EXPECT_EQ(done.signal, 0);
  EXPECT_TRUE(done.event("step").is_null());
}

TEST(LargestBatch, FitsAndOneMoreDoesNot) {
  const Json most = plan({"mnist-cnn", "--batch", "max", "--memory", "96MiB"});
  EXPECT_EQ(most.at("fits", "plan"), Json(true));
  EXPECT_LE(integer_at(most, "process_bytes"), 96 * kMiB);
  const int64_t batch = integer_at(most, "batch");
  EXPECT_EQ(integer_at(most, "max_batch"), batch);
  const Json above = plan({"mnist-cnn", "--batch", std::to_string(batch + 1), "--memory", "96MiB"});
  EXPECT_EQ(above.at("fits", "plan"), Json(false));
}

// ---- equal bits

TEST(Runs, OfOneSeedAreEqualAndOfAnotherAreNot) {
  for (const char* model : {"mlp", "mnist-cnn"}) {
    auto hashes = [&](const char* seed, Words more = {}) {
      Words words{"train", model, "--batch", "16", "--steps", "4", "--json", "--seed", seed};
      words.insert(words.end(), more.begin(), more.end());
      const Finished done = plimsoll(words);
      EXPECT_EQ(done.exit, 0) << done.err;
      const Json end = done.event("end");
      return std::pair(end.at("weights_xxh3", "end"), end.at("state_xxh3", "end"));
    };
    const auto first = hashes("7"), again = hashes("7"), other = hashes("8");
    EXPECT_EQ(first, again) << model;
    EXPECT_NE(first.first, other.first) << model;
    EXPECT_NE(first.second, other.second) << model;
    EXPECT_NE(first.first, first.second) << model << ": state is more than the weights";
    if (!kSanitized) {
      EXPECT_EQ(hashes("7", {"--memory", "1GiB"}), first) << "at another budget";
    }
  }
}

}  // namespace
}  // namespace pl::test::memory_test

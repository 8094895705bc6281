// The JSON that scripts rely on: every key of the contract, with its type, and nothing but JSON.
#include <set>

#include "tests/end_to_end/command.h"

namespace pl::test::contract_test {
namespace {

using Kind = Json::Kind;

struct Key {
  const char* name;
  std::set<Kind> kinds;
};

const std::set<Kind> kWhole{Kind::integer}, kNumber{Kind::integer, Kind::real}, kText{Kind::string},
    kFlag{Kind::boolean}, kObject{Kind::object}, kList{Kind::array};
const std::set<Kind> kWholeOrNull{Kind::integer, Kind::null};

const std::vector<Key> kPlanKeys = {
    {"model", kText},
    {"batch", kWhole},
    {"dtype", kText},
    {"optimizer", kText},
    {"device", kText},
    {"threads", kWhole},
    {"fits", kFlag},
    {"exact", kFlag},
    {"budget_bytes", kWholeOrNull},
    {"process_bytes", kWhole},
    {"fixed_bytes", kWhole},
    {"pipeline_bytes", kWhole},
    {"arena_bytes", kWhole},
    {"lower_bound_bytes", kWhole},
    {"persistent_bytes", kWhole},
    {"categories", kObject},
    {"step_ms", kNumber},
    {"unlimited", kObject},
    {"overhead", kNumber},
    {"split", kWhole},
    {"recomputed", kObject},
    {"offloaded_bytes", kWhole},
    {"minimum_bytes", kWhole},
    {"bound_bytes", kWhole},
    {"max_batch", kWholeOrNull},
    {"graph_nodes", kWhole},
    {"plan_steps", kWhole},
    {"plan_ms", kNumber},
    {"numerics", kText},
    {"remedies", kList},
};
const std::vector<Key> kCategoryKeys = {
    {"parameters", kWhole}, {"gradients", kWhole}, {"optimizer", kWhole}, {"activations", kWhole},
    {"workspace", kWhole},  {"input", kWhole},     {"other", kWhole},
};
const std::vector<Key> kUnlimitedKeys = {
    {"arena_bytes", kWhole}, {"process_bytes", kWhole}, {"step_ms", kNumber}};
const std::vector<Key> kRecomputedKeys = {{"values", kWhole}, {"bytes", kWhole}, {"ms", kNumber}};
const std::vector<Key> kRemedyKeys = {
    {"change", kText}, {"process_bytes", kWhole}, {"step_ms", kNumber}};
const std::vector<Key> kStepKeys = {
    {"event", kText}, {"step", kWhole}, {"loss", kNumber}, {"ms", kNumber}};
const std::vector<Key> kEndKeys = {
    {"event", kText},
    {"steps", kWhole},
    {"loss_first", kNumber},
    {"loss_last", kNumber},
    {"step_ms_median", kNumber},
    {"step_ms_min", kNumber},
    {"samples_per_s", kNumber},
    {"arena_bytes_planned", kWhole},
    {"arena_bytes_used", kWhole},
    {"process_bytes_planned", kWhole},
    {"process_bytes_peak", kWhole},
    {"deterministic", kFlag},
    {"heap_allocations_per_step", kNumber},
    {"library_allocations_per_step", kNumber},
    {"weights_xxh3", kText},
    {"state_xxh3", kText},
};

void expect_keys(const Json& object, const std::vector<Key>& keys, const std::string& what) {
  ASSERT_TRUE(object.is_object()) << what;
  for (const Key& key : keys) {
    const Json* value = object.find(key.name);
    ASSERT_TRUE(value) << what << " has no " << key.name;
    EXPECT_TRUE(key.kinds.contains(value->kind()))
        << what << "." << key.name << ": " << value->dump();
  }
}

void expect_hex16(const Json& text) {
  const std::string& digits = text.as_string("hash");
  EXPECT_EQ(digits.size(), 16u) << digits;
  EXPECT_EQ(digits.find_first_not_of("0123456789abcdef"), std::string::npos) << digits;
}

// Keys, and what must hold between them.
void expect_plan(const Json& plan) {
  expect_keys(plan, kPlanKeys, "plan");
  expect_keys(plan.at("categories", "plan"), kCategoryKeys, "categories");
  expect_keys(plan.at("unlimited", "plan"), kUnlimitedKeys, "unlimited");
  expect_keys(plan.at("recomputed", "plan"), kRecomputedKeys, "recomputed");
  for (const Json& remedy : plan.at("remedies", "plan").as_array("remedies"))
    expect_keys(remedy, kRemedyKeys, "remedy");
  const auto& categories = plan.at("categories", "plan").as_object("categories");
  EXPECT_EQ(categories.size(), kCategoryKeys.size());
  int64_t sum = 0;
  for (const auto& [name, bytes] : categories) sum += bytes.as_integer(name);
  EXPECT_EQ(sum, integer_at(plan, "lower_bound_bytes"));
  EXPECT_EQ(integer_at(plan, "process_bytes"),
            integer_at(plan, "fixed_bytes") + integer_at(plan, "arena_bytes"));
  EXPECT_LE(integer_at(plan, "persistent_bytes"), integer_at(plan, "lower_bound_bytes"));
  EXPECT_LE(integer_at(plan, "lower_bound_bytes"), integer_at(plan, "arena_bytes"));
  EXPECT_LE(integer_at(plan, "bound_bytes"), integer_at(plan, "minimum_bytes"));
  EXPECT_LE(integer_at(plan, "minimum_bytes"), integer_at(plan, "process_bytes"));
  EXPECT_GT(integer_at(plan, "graph_nodes"), 0);
  EXPECT_GT(integer_at(plan, "plan_steps"), 0);
  EXPECT_GE(integer_at(plan, "split"), 1);
  expect_hex16(plan.at("numerics", "plan"));
}

TEST(PlanJson, HasEveryKeyOfTheContract) {
  for (const char* model : {"mlp", "mnist-cnn", "small-cnn"}) {
    SCOPED_TRACE(model);
    const Finished done = plimsoll({"plan", model, "--json"});
    EXPECT_EQ(done.exit, 0) << done.err;
    const std::vector<Json> lines = done.lines();
    ASSERT_EQ(lines.size(), 1u);
    expect_plan(lines[0]);
    EXPECT_EQ(lines[0].at("model", "plan"), Json(model));
    EXPECT_EQ(lines[0].at("batch", "plan"), Json(32));
    EXPECT_EQ(lines[0].at("optimizer", "plan"), Json("adam"));
    EXPECT_EQ(lines[0].at("dtype", "plan"), Json("float32"));
    EXPECT_EQ(lines[0].at("device", "plan"), Json("cpu"));
    EXPECT_TRUE(lines[0].at("budget_bytes", "plan").is_null());
    EXPECT_EQ(lines[0].at("fits", "plan"), Json(true));
    EXPECT_EQ(lines[0].at("exact", "plan"), Json(true));
  }
}

TEST(PlanJson, WithABudgetHasTheLargestBatch) {
  const Finished done = plimsoll({"plan", "mlp", "--json", "--memory", "128MiB"});
  EXPECT_EQ(done.exit, 0) << done.err;
  const Json plan = done.lines().at(0);
  expect_plan(plan);
  EXPECT_EQ(integer_at(plan, "budget_bytes"), 128 * kMiB);
  EXPECT_GT(integer_at(plan, "max_batch"), 32);
}

TEST(PlanJson, ThatDoesNotFitIsTheSameObject) {
  const Finished done = plimsoll({"plan", "mlp", "--json", "--memory", "20MiB", "--batch", "4096"});
  EXPECT_EQ(done.exit, 3);
  expect_plan(done.lines().at(0));
}

TEST(PlanJson, FollowsItsOptions) {
  const Finished done =
      plimsoll({"plan", "mnist-cnn", "--json", "--batch", "7", "--dtype", "float64", "--optimizer",
                "sgd", "--threads", "1", "--input", "32x20x3"});
  EXPECT_EQ(done.exit, 0) << done.err;
  const Json plan = done.lines().at(0);
  expect_plan(plan);
  EXPECT_EQ(plan.at("batch", "plan"), Json(7));
  EXPECT_EQ(plan.at("dtype", "plan"), Json("float64"));
  EXPECT_EQ(plan.at("optimizer", "plan"), Json("sgd"));
  EXPECT_EQ(plan.at("threads", "plan"), Json(1));
  EXPECT_EQ(integer_at(plan.at("categories", "plan"), "optimizer"), 0) << "sgd has no state";
}

TEST(TrainJson, IsOneObjectALineWithEveryKey) {
  const Finished done = plimsoll({"train", "mlp", "--steps", "4", "--json"});
  EXPECT_EQ(done.exit, 0) << done.err;
  const std::vector<Json> lines = done.lines();
  ASSERT_GE(lines.size(), 6u);
  EXPECT_EQ(lines.front().at("event", "line"), Json("plan"));
  EXPECT_EQ(lines.back().at("event", "line"), Json("end"));
  expect_plan(lines.front());
  int64_t steps = 0, epochs = 0;
  for (const Json& line : lines) {
    const Json& event = line.at("event", "line");
    if (event == Json("step")) {
      expect_keys(line, kStepKeys, "step");
      EXPECT_EQ(integer_at(line, "step"), ++steps);
    }
    epochs += event == Json("epoch");
  }
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(epochs, 1);
  const Json& end = lines.back();
  expect_keys(end, kEndKeys, "end");
  EXPECT_EQ(integer_at(end, "steps"), 4);
  EXPECT_EQ(end.at("loss_first", "end"), lines[1].at("loss", "step"));
  expect_hex16(end.at("weights_xxh3", "end"));
  expect_hex16(end.at("state_xxh3", "end"));
  EXPECT_LT(end.at("loss_last", "end").as_real("loss"),
            end.at("loss_first", "end").as_real("loss"));
}

TEST(ModelsJson, ListsNamesShapesAndWeights) {
  const Finished all = plimsoll({"models", "--json"});
  EXPECT_EQ(all.exit, 0);
  std::set<std::string> names;
  const std::vector<Json> lines = all.lines();
  for (const Json& model : lines.at(0).as_array("models"))
    names.insert(model.at("name", "model").as_string("name"));
  for (const char* name : {"mlp", "mnist-cnn", "small-cnn"}) EXPECT_TRUE(names.contains(name));
  const Finished one = plimsoll({"models", "mlp", "--json"});
  EXPECT_EQ(one.exit, 0);
  const Json model = one.lines().at(0);
  EXPECT_EQ(integer_at(model, "parameters"), 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
  const auto& weights = model.at("weights", "model").as_array("weights");
  ASSERT_EQ(weights.size(), 6u);
  EXPECT_EQ(weights[0].at("name", "weight"), Json("dense/kernel"));
  EXPECT_EQ(weights[0].at("shape", "weight").dump(), "[784,512]");
  EXPECT_EQ(weights[0].at("dtype", "weight"), Json("float32"));
}

TEST(TextOutput, LeavesStdoutEmptyWhenItIsNoTerminal) {
  for (const Words& words : {Words{"plan", "mlp"}, Words{"train", "mlp", "--steps", "2"},
                             Words{"models"}, Words{"models", "mnist-cnn"}}) {
    const Finished done = plimsoll(words);
    EXPECT_EQ(done.exit, 0) << done.err;
    EXPECT_EQ(done.out, "") << words[0];
    EXPECT_NE(done.err, "") << words[0];
  }
}

TEST(SavedWeights, GoOnWhereTheyStopped) {
  const TempFolder folder;
  const std::string file = folder / "w.safetensors";
  const Finished first = plimsoll(
      {"train", "mlp", "--steps", "3", "--json", "--save-weights", file, "--optimizer", "sgd"});
  ASSERT_EQ(first.exit, 0) << first.err;
  const Finished second =
      plimsoll({"train", "mlp", "--steps", "2", "--json", "--weights", file, "--optimizer", "sgd"});
  ASSERT_EQ(second.exit, 0) << second.err;
  const Finished whole = plimsoll({"train", "mlp", "--steps", "5", "--json", "--optimizer", "sgd"});
  EXPECT_EQ(second.event("end").at("weights_xxh3", "end"),
            whole.event("end").at("weights_xxh3", "end"))
      << "plain sgd has no state but the weights";
}

TEST(RunFolder, HoldsPlanLogAndWeights) {
  const TempFolder folder;
  const std::string run = folder / "runs/one";
  const Finished done = plimsoll({"train", "mlp", "--steps", "2", "--json", "--run", run});
  ASSERT_EQ(done.exit, 0) << done.err;
  expect_plan(parse_json(::pl::test::read_bytes(run + "/plan.json"), "plan.json"));
  EXPECT_EQ(::pl::test::read_bytes(run + "/log.jsonl"), done.out);
  EXPECT_GT(::pl::test::read_bytes(run + "/weights.safetensors").size(), 4u * 669706u);
}

}  // namespace
}  // namespace pl::test::contract_test

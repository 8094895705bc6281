// plan --what-if: a row for each layer, and figures that plans of their own confirm.
#include <algorithm>

#include "tests/end_to_end/command.h"
#include "tests/setting.h"

namespace pl::test::what_if_test {
namespace {

TEST(WhatIfCommand, FiguresAreThoseOfPlans) {
  const Words plan{"plan", "mnist-cnn", "--batch", "64", "--threads", "1", "--json"};
  Words asking = plan;
  asking.insert(asking.end(), {"--what-if", "activation,size"});
  const Finished done = plimsoll(asking);
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json answer = done.lines().at(0);
  const auto& cases = answer.at("what_if", "plan").as_array("what_if");
  size_t layers = 0, halved = 0;
  for (const Json& one : cases) {
    const std::string layer = one.at("layer", "case").as_string("layer");
    if (one.at("change", "case") == Json("size")) {
      ++layers;
      const Json* bytes = one.find("arena_bytes");
      if (!bytes) continue;
      ++halved;
      EXPECT_LE(bytes->as_integer("arena_bytes"), integer_at(answer, "arena_bytes")) << layer;
      continue;
    }
    if (!one.find("arena_bytes")) continue;
    Words other = plan;
    other.insert(other.end(), {"--remat", layer});
    const Finished alone = plimsoll(other);
    ASSERT_EQ(alone.exit, 0) << alone.err;
    const Json expected = alone.lines().at(0);
    EXPECT_EQ(integer_at(one, "arena_bytes"), integer_at(expected, "arena_bytes")) << layer;
    EXPECT_EQ(integer_at(one, "process_bytes"), integer_at(expected, "process_bytes")) << layer;
  }
  EXPECT_EQ(layers, 7u);
  EXPECT_GE(halved, 3u);  // two convolutions and a dense layer
  const Finished text =
      plimsoll({"plan", "mnist-cnn", "--threads", "1", "--what-if", "activation,dtype,size"});
  EXPECT_NE((text.out + text.err).find("conv2d (Conv2D)"), std::string::npos) << text.out;
  const Finished bad = plimsoll({"plan", "mnist-cnn", "--what-if", "speed"});
  EXPECT_EQ(bad.exit, 2);
  EXPECT_NE(bad.err.find("--what-if"), std::string::npos) << bad.err;
}

TEST(WhatIfCommand, TrainingAnswersAsThePlanDoesBeforeItsFirstStep) {
  const Words asked{"--batch", "64",        "--threads",  "1",       "--memory",  "32MiB",
                    "--json",  "--what-if", "activation", "--curve", "--frontier"};
  const Setting nominal("PLIMSOLL_COSTS", "nominal");
  Words plan{"plan", "mnist-cnn"}, train{"train", "mnist-cnn", "--steps", "2"};
  for (Words* words : {&plan, &train}) words->insert(words->end(), asked.begin(), asked.end());
  const Json expected = plimsoll(plan).lines().at(0);
  const Finished done = plimsoll_measured(train);
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json first = done.lines().at(0);
  ASSERT_EQ(first.at("event", "first line"), Json("plan"));
  for (const char* key : {"what_if", "frontier", "curve"}) {
    ASSERT_TRUE(first.find(key)) << key;
    EXPECT_EQ(first.at(key, "train").dump(), expected.at(key, "plan").dump());
  }
  if (!kSanitized) {
    EXPECT_LE(done.peak, integer_at(first, "process_bytes"));
  }
  train.erase(std::find(train.begin(), train.end(), "--json"));
  const Finished text = plimsoll(train);
  EXPECT_NE((text.out + text.err).find("conv2d (Conv2D)"), std::string::npos) << text.err;
}

}  // namespace
}  // namespace pl::test::what_if_test

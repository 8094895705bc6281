// `plimsoll data`: a pipeline alone, within its budget.
#include "tests/end_to_end/command.h"

namespace pl::test {
namespace {

using ::pl::testing::write_bytes;

TEST(DataCommand, SaysHowFastSamplesComeAndWhatTheyHold) {
  const Finished done =
      plimsoll({"data", "fashion-mnist", "--batch", "100", "--memory", "8MiB", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json json = parse_json(done.out, "data");
  EXPECT_EQ(json.at("samples", "data").as_integer("samples"), 60'000);
  EXPECT_GT(json.at("samples_per_s", "data").as_real("rate"), 0);
  EXPECT_EQ(json.at("budget_bytes", "data").as_integer("bytes"), 8 * kMiB);
  EXPECT_LE(json.at("peak_bytes", "data").as_integer("bytes"), 8 * kMiB);
  const auto& stages = json.at("stages", "data").as_array("stages");
  EXPECT_EQ(stages.back().at("name", "stage").as_string("name"), "prefetch");
  EXPECT_EQ(stages.back().at("elements", "stage").as_integer("elements"), 600);
}

TEST(DataCommand, RefusesWhatCannotBe) {
  const Finished small = plimsoll({"data", "fashion-mnist", "--memory", "16KiB"});
  EXPECT_EQ(small.exit, 3);
  EXPECT_NE(small.err.find("batch(32)"), std::string::npos) << small.err;
  EXPECT_EQ(plimsoll({"data", "nowhere"}).exit, 2);
  EXPECT_EQ(plimsoll({"data"}).exit, 2);
  EXPECT_EQ(plimsoll({"data", "fashion-mnist", "--batch", "0"}).exit, 2);
}

TEST(DataCommand, ReadsLines) {
  const ::pl::testing::TempFolder folder;
  write_bytes(folder / "a.txt", "one\ntwo\nthree\n");
  const Finished done = plimsoll({"data", folder / "a.txt", "--epochs", "2", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(parse_json(done.out, "data").at("samples", "data").as_integer("samples"), 6);
}

}  // namespace
}  // namespace pl::test

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

TEST(DataCommand, MakesSyntheticSamplesAndReadsArrays) {
  const Finished made = plimsoll({"data", "synthetic", "--input", "8x8x3", "--json"});
  ASSERT_EQ(made.exit, 0) << made.err;
  EXPECT_EQ(parse_json(made.out, "data").at("samples", "data").as_integer("samples"), 10'000);
  const ::pl::testing::TempFolder folder;
  write_bytes(folder / "x.npy", ::pl::testing::npy_of("<f4", "(5, 2)", std::string(40, '\0')));
  const Finished read = plimsoll({"data", folder / "x.npy", "--json"});
  ASSERT_EQ(read.exit, 0) << read.err;
  EXPECT_EQ(parse_json(read.out, "data").at("samples", "data").as_integer("samples"), 5);
}

TEST(DataCommand, SaysWhatIsMissing) {
  const Finished none = plimsoll({"data", "/nowhere/photos"});
  EXPECT_EQ(none.exit, 2);
  EXPECT_NE(none.err.find("'/nowhere/photos'"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("does not exist"), std::string::npos) << none.err;
  EXPECT_EQ(none.err.find("--data:"), std::string::npos) << none.err;
  const ::pl::testing::TempFolder folder;
  const Finished empty = plimsoll({"data", folder.path()});
  EXPECT_EQ(empty.exit, 2);
  EXPECT_NE(empty.err.find("JPEG, PNG or BMP"), std::string::npos) << empty.err;
}

TEST(DataCommand, WritesAPageThatNeedsNoOther) {
  const ::pl::testing::TempFolder folder;
  std::filesystem::create_directories(folder / "photos/cat");
  for (const char* name : {"photos/cat/a.bmp", "photos/cat/b.bmp", "photos/cat/c.bmp"})
    write_bytes(folder / name,
                ::pl::testing::read_bytes(::pl::testing::golden_file("formats/pillow_RGB.bmp")));
  const std::string page = folder / "page.html";
  const Finished done = plimsoll({"data", folder / "photos", "--input", "16x16x3", "--batch", "2",
                                  "--memory", "16MiB", "--html", page});
  ASSERT_EQ(done.exit, 0) << done.err;
  const std::string html = ::pl::testing::read_bytes(page);
  size_t pictures = 0;
  for (size_t at = 0;
       (at = html.find("data:image/png;base64,iVBORw0KGgo", at)) != std::string::npos; ++at)
    ++pictures;
  EXPECT_EQ(pictures, 3u);
  for (const char* part : {"decode_image", "batch(2)", "y: 0", "16.0 MiB", "a second"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* part : {"http:", "https:", "<script", "<link", "url("})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  // Lines of text are shown as such, and what is in them stays text.
  write_bytes(folder / "a.txt", "<b>one</b>\n\xFF\n");
  ASSERT_EQ(plimsoll({"data", folder / "a.txt", "--html", page}).exit, 0);
  EXPECT_NE(::pl::testing::read_bytes(page).find("&lt;b&gt;one"), std::string::npos);
  EXPECT_EQ(plimsoll({"data", folder / "a.txt", "--html", "/nowhere/page.html"}).exit, 2);
}

TEST(DataCommand, ThePlanHasALineForTheData) {
  const Finished json = plimsoll({"plan", "mnist-cnn", "--data", "fashion-mnist", "--json"});
  ASSERT_EQ(json.exit, 0) << json.err;
  const Json plan = parse_json(json.out, "plan");
  const int64_t held = plan.at("pipeline_bytes", "plan").as_integer("bytes");
  EXPECT_GT(held, 0);
  EXPECT_LE(held, plan.at("fixed_bytes", "plan").as_integer("bytes"));
  const Finished text = plimsoll({"plan", "mnist-cnn", "--data", "fashion-mnist"});
  EXPECT_NE((text.out + text.err).find("input pipeline"), std::string::npos) << text.err;
  const Finished none = plimsoll({"plan", "mnist-cnn", "--json"});
  EXPECT_EQ(parse_json(none.out, "plan").at("pipeline_bytes", "plan").as_integer("bytes"), 0);
}

}  // namespace
}  // namespace pl::test

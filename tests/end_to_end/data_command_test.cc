// `plimsoll data`: a pipeline alone, within its budget.
#include "tests/end_to_end/command.h"

namespace pl::test::data_command_test {
namespace {

using ::pl::test::write_bytes;

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

TEST(DataCommand, NoSamplesAreAnError) {
  const TempFolder folder;
  ::pl::test::write_bytes(folder / "empty.txt", "");
  const Finished done = plimsoll({"data", folder / "empty.txt"});
  EXPECT_EQ(done.exit, 2);
  EXPECT_NE(done.err.find("expected samples, received none"), std::string::npos) << done.err;
}

TEST(PlanCommand, CallsAreOfADevice) {
  const Finished done = plimsoll({"plan", "mlp", "--calls", "nowhere"});
  EXPECT_EQ(done.exit, 2);
  EXPECT_NE(done.err.find("--calls: expected --device cuda"), std::string::npos) << done.err;
}

TEST(DataCommand, ReadsLines) {
  const ::pl::test::TempFolder folder;
  write_bytes(folder / "a.txt", "one\ntwo\nthree\n");
  const Finished done = plimsoll({"data", folder / "a.txt", "--epochs", "2", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(parse_json(done.out, "data").at("samples", "data").as_integer("samples"), 6);
}

TEST(DataCommand, MakesSyntheticSamplesAndReadsArrays) {
  const Finished made = plimsoll({"data", "synthetic", "--input", "8x8x3", "--json"});
  ASSERT_EQ(made.exit, 0) << made.err;
  EXPECT_EQ(parse_json(made.out, "data").at("samples", "data").as_integer("samples"), 10'000);
  const ::pl::test::TempFolder folder;
  write_bytes(folder / "x.npy", ::pl::test::npy_of("<f4", "(5, 2)", std::string(40, '\0')));
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
  const ::pl::test::TempFolder folder;
  const Finished empty = plimsoll({"data", folder.path()});
  EXPECT_EQ(empty.exit, 2);
  EXPECT_NE(empty.err.find("JPEG, PNG or BMP"), std::string::npos) << empty.err;
}

TEST(DataCommand, WritesAPageThatNeedsNoOther) {
  const ::pl::test::TempFolder folder;
  std::filesystem::create_directories(folder / "photos/cat");
  for (const char* name : {"photos/cat/a.bmp", "photos/cat/b.bmp", "photos/cat/c.bmp"})
    write_bytes(folder / name,
                ::pl::test::read_bytes(::pl::test::golden_file("formats/pillow_RGB.bmp")));
  const std::string page = folder / "page.html";
  const Finished done = plimsoll({"data", folder / "photos", "--input", "16x16x3", "--batch", "2",
                                  "--memory", "16MiB", "--html", page});
  ASSERT_EQ(done.exit, 0) << done.err;
  const std::string html = ::pl::test::read_bytes(page);
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
  EXPECT_NE(::pl::test::read_bytes(page).find("&lt;b&gt;one"), std::string::npos);
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

int64_t samples_of(const Finished& done) {
  EXPECT_EQ(done.exit, 0) << done.err;
  return done.exit == 0 ? parse_json(done.out, "data").at("samples", "data").as_integer("n") : -1;
}

TEST(DataCommand, ReadsEveryKindOfFile) {
  const ::pl::test::TempCache folder;
  const auto data = [&](const std::string& source, const std::string& batch = "2") {
    return samples_of(plimsoll({"data", source, "--input", "8x8x3", "--batch", batch, "--json"}));
  };
  const auto sized = [](size_t bytes) { return std::string(bytes, '\1'); };
  write_bytes(folder / "a.csv", "a,name,b\n1,x,2\n3,y,4\n5,z,6\n");
  write_bytes(folder / "bare.csv", "1,2\n3,4\n");
  write_bytes(folder / "x.npy", ::pl::test::npy_of("<f4", "(5, 2)", std::string(40, '\0')));
  write_bytes(folder / "c.bin", sized(3073 * 4));
  const std::string header =
      std::string("\0\0\x08\x03", 4) + ::pl::test::big(7) + ::pl::test::big(2) + ::pl::test::big(2);
  write_bytes(folder / "x-ubyte", header + sized(28));
  write_bytes(folder / "x.idx", header + sized(28));
  EXPECT_EQ(data(folder / "a.csv"), 3);
  EXPECT_EQ(data(folder / "bare.csv"), 2);
  EXPECT_EQ(data(folder / "x.npy"), 5);
  EXPECT_EQ(data(folder / "c.bin"), 4);
  EXPECT_EQ(data(folder / "x-ubyte"), 7);
  EXPECT_EQ(data(folder / "x.idx"), 7);
  EXPECT_GT(data(::pl::test::golden_file("formats/tf.tfrecord")), 0);
  const std::string image =
      ::pl::test::read_bytes(::pl::test::golden_file("formats/pillow_RGB.bmp"));
  std::filesystem::create_directory(folder / "shards");
  for (const char* name : {"shards/0.tar", "shards/1.tar"}) {
    std::string tar;
    for (const char* key : {"s0", "s1", "s2"})
      tar += ::pl::test::tar_entry(key + std::string(".bmp"), image) +
             ::pl::test::tar_entry(key + std::string(".cls"), "1\n");
    write_bytes(folder / name, tar + std::string(1024, '\0'));
  }
  EXPECT_EQ(data(folder / "shards/0.tar"), 3);
  EXPECT_EQ(data(folder / "shards"), 6);
  EXPECT_EQ(data(folder / "shards/*.tar"), 6);
  // Folders of classes below train, with more folders below them.
  for (const char* name : {"photos/train/a/deep", "photos/train/b", "photos/val/a", "photos/val/b"})
    std::filesystem::create_directories(folder / name);
  for (const char* name : {"photos/train/a/deep/0.bmp", "photos/train/b/1.bmp",
                           "photos/val/a/0.bmp", "photos/val/b/1.bmp"})
    write_bytes(folder / name, image);
  write_bytes(folder / "photos/train/b/notes.pdf", "x");
  const Finished photos =
      plimsoll({"data", folder / "photos", "--input", "8x8x3", "--batch", "9999", "--json"});
  EXPECT_EQ(samples_of(photos), 2);
  EXPECT_NE(photos.err.find("2 images of 2 classes; passed over 1 file: b/notes.pdf"),
            std::string::npos)
      << photos.err;
  // As many as there are, whatever the batch.
  EXPECT_LT(parse_json(photos.out, "data").at("minimum_bytes", "data").as_integer("n"), 16 * kMiB);
}

TEST(DataCommand, BatchesLines) {
  const ::pl::test::TempFolder folder;
  write_bytes(folder / "a.txt", "one\ntwo\nthree\nfour\nfive\n");
  const Finished done = plimsoll({"data", folder / "a.txt", "--batch", "2", "--json"});
  EXPECT_EQ(samples_of(done), 5);
  const Json answer = parse_json(done.out, "data");
  const auto& stages = answer.at("stages", "data").as_array("stages");
  EXPECT_EQ(stages.back().at("elements", "stage").as_integer("elements"), 3);
}

TEST(DataCommand, NamesAllThatItReads) {
  const ::pl::test::TempFolder folder;
  write_bytes(folder / "a.xyz", "what");
  const Finished done = plimsoll({"data", folder / "a.xyz"});
  EXPECT_EQ(done.exit, 2);
  for (const char* part :
       {"synthetic", "fashion-mnist", ".npz", ".npy", ".tfrecord", ".csv", ".txt", ".tar", ".bin",
        "IDX", "JPEG, PNG or BMP", "train and val", "CIFAR"})
    EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
  const Finished help = plimsoll({"train", "--help"});
  for (const char* part : {"CIFAR", ".npz", ".txt", ".tar", "IDX", "JPEG", "--on-error"})
    EXPECT_NE((help.out + help.err).find(part), std::string::npos) << part;
}

TEST(DataCommand, StopsAtDamageOrSkipsAndNamesIt) {
  const ::pl::test::TempFolder folder;
  const std::string image =
      ::pl::test::read_bytes(::pl::test::golden_file("formats/pillow_RGB.bmp"));
  for (const char* name : {"photos/a", "photos/b"})
    std::filesystem::create_directories(folder / name);
  for (int i = 0; i < 6; ++i)
    write_bytes(
        folder / ("photos/" + std::string(i % 2 ? "a/" : "b/") + std::to_string(i) + ".bmp"),
        i == 3   ? "broken"
        : i == 4 ? image.substr(0, image.size() / 2)
                 : image);
  const std::string photos = folder / "photos";
  const Finished stops = plimsoll({"data", photos, "--input", "8x8x3"});
  EXPECT_EQ(stops.exit, 2);
  EXPECT_NE(stops.err.find(".bmp"), std::string::npos) << stops.err;
  const Finished skips =
      plimsoll({"data", photos, "--input", "8x8x3", "--on-error", "skip", "--json"});
  EXPECT_EQ(samples_of(skips), 4);
  EXPECT_EQ(parse_json(skips.out, "data").at("skipped", "data").as_integer("n"), 2);
  EXPECT_NE(skips.out.find("3.bmp"), std::string::npos);
  EXPECT_NE(skips.out.find("4.bmp"), std::string::npos);
  EXPECT_EQ(plimsoll({"data", photos, "--on-error", "perhaps"}).exit, 2);
  // The same of training.
  std::vector<std::string> train{"train",   "small-cnn", "--data", photos,     "--input", "64x64x3",
                                 "--batch", "2",         "--json", "--epochs", "2"};
  const Finished stopped = plimsoll(train);
  EXPECT_EQ(stopped.exit, 2);
  EXPECT_NE(stopped.err.find("3.bmp"), std::string::npos) << stopped.err;
  train.insert(train.end(), {"--on-error", "skip"});
  const Finished trained = plimsoll(train);
  EXPECT_EQ(trained.exit, 0) << trained.err;
  EXPECT_NE(trained.err.find("3.bmp"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find("4.bmp"), std::string::npos) << trained.err;
}

// Damage that shows while archives, records and tables are opened.
TEST(DataCommand, SkipsWhatCannotBeIndexed) {
  const ::pl::test::TempFolder folder;
  using ::pl::test::tar_entry;
  const std::string image =
      ::pl::test::read_bytes(::pl::test::golden_file("formats/pillow_RGB.bmp"));
  const std::string end(1024, '\0');
  std::filesystem::create_directories(folder / "shards");
  write_bytes(folder / "shards/0.tar", tar_entry("a.bmp", image) + tar_entry("a.cls", "0") +
                                           tar_entry("b.bmp", image) + tar_entry("c.bmp", image) +
                                           tar_entry("c.cls", "1") + end);
  write_bytes(folder / "shards/1.tar", tar_entry("d.bmp", image) + tar_entry("d.cls", "1") +
                                           tar_entry("e.bmp", image).substr(0, 512 + 20));
  const std::string shards = folder / "shards";
  std::vector<std::string> look{"data", shards, "--input", "8x8x3", "--json"};
  EXPECT_EQ(plimsoll(look).exit, 2);
  look.insert(look.end(), {"--on-error", "skip"});
  const Finished skips = plimsoll(look);
  EXPECT_EQ(samples_of(skips), 3);
  EXPECT_EQ(parse_json(skips.out, "data").at("skipped", "data").as_integer("n"), 2);
  EXPECT_NE(skips.out.find("sample b"), std::string::npos) << skips.out;
  EXPECT_NE(skips.out.find("1.tar, byte"), std::string::npos) << skips.out;
  std::vector<std::string> train{"train",   "small-cnn", "--data", shards,  "--input",
                                 "64x64x3", "--batch",   "2",      "--json"};
  const Finished stopped = plimsoll(train);
  EXPECT_EQ(stopped.exit, 2);
  EXPECT_NE(stopped.err.find("sample b"), std::string::npos) << stopped.err;
  train.insert(train.end(), {"--on-error", "skip"});
  const Finished trained = plimsoll(train);
  EXPECT_EQ(trained.exit, 0) << trained.err;
  EXPECT_NE(trained.err.find("skipped 2 samples in all, 3 are left"), std::string::npos)
      << trained.err;
  // Tables: the first file may be the damaged one. Records: the rest of a file.
  write_bytes(folder / "0.csv", "a,\"b\n1,2\n");
  write_bytes(folder / "1.csv", "a,b\n1,2\n3,4\n");
  const Finished tables = plimsoll({"data", folder / "*.csv", "--json", "--on-error", "skip"});
  EXPECT_EQ(samples_of(tables), 2) << tables.err;
  EXPECT_NE(tables.out.find("0.csv"), std::string::npos) << tables.out;
  EXPECT_EQ(plimsoll({"data", folder / "*.csv"}).exit, 2);
  const std::string records =
      ::pl::test::read_bytes(::pl::test::golden_file("formats/tf.tfrecord"));
  write_bytes(folder / "cut.tfrecord", records.substr(0, records.size() - 3));
  const Finished cut = plimsoll({"data", folder / "cut.tfrecord", "--json", "--on-error", "skip"});
  EXPECT_EQ(samples_of(cut), 2) << cut.err;
  EXPECT_NE(cut.out.find("cut.tfrecord, record 2"), std::string::npos) << cut.out;
}

}  // namespace
}  // namespace pl::test::data_command_test

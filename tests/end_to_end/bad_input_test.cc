// Bad input: exit code 2, a message that says what was expected, nothing but JSON on stdout, and
// never a signal.
#include <sys/stat.h>

#include "data/safetensors.h"
#include "tests/end_to_end/command.h"

namespace pl::test::bad_input_test {
namespace {

using ::pl::test::little;
using ::pl::test::npy_of;
using ::pl::test::write_bytes;
using ::pl::test::zip;

// With and without --json; `part` must be in the message.
void expect_refused(const Words& words, const std::string& part, int exit = 2) {
  for (const bool json : {false, true}) {
    Words with = words;
    if (json) with.push_back("--json");
    std::string line;
    for (const std::string& word : with) line += word + " ";
    SCOPED_TRACE(line);
    const Finished done = plimsoll(with);
    EXPECT_EQ(done.signal, 0);
    EXPECT_EQ(done.exit, exit) << done.err;
    EXPECT_NE(done.err.find(part), std::string::npos)
        << "expected '" << part << "' in: " << done.err;
    EXPECT_NE(done.err.find("plimsoll: ["), std::string::npos) << done.err;
    if (json)
      for (const Json& value : done.lines()) EXPECT_TRUE(value.is_object());
    else
      EXPECT_EQ(done.out, "");
  }
}

TEST(BadUsage, OfTheCommandLineIsRefused) {
  const std::pair<Words, const char*> cases[] = {
      {{"plan", "nosuch"}, "mnist-cnn"},
      {{"plan", "resnet-50"}, "expected one of"},
      {{"plan", ""}, "model"},
      {{"plan"}, "model"},
      {{"train"}, "model"},
      {{"models", "nosuch"}, "mnist-cnn"},
      {{"plan", "mlp", "--memory", "0"}, "--memory"},
      {{"plan", "mlp", "--memory", "-5GiB"}, "--memory"},
      {{"plan", "mlp", "--memory=-5GiB"}, "--memory"},
      {{"plan", "mlp", "--memory", "1e99"}, "--memory"},
      {{"plan", "mlp", "--memory", "4QiB"}, "--memory"},
      {{"plan", "mlp", "--memory", "99999999999GiB"}, "--memory"},
      {{"plan", "mlp", "--memory", "GiB"}, "--memory"},
      {{"plan", "mlp", "--memory", "1 GiB x"}, "--memory"},
      {{"plan", "mlp", "--memory", ""}, "--memory"},
      {{"plan", "mlp", "--memory", "nan"}, "--memory"},
      {{"plan", "mlp", "--batch", "-1"}, "--batch"},
      {{"plan", "mlp", "--batch", "0"}, "--batch"},
      {{"plan", "mlp", "--batch", ""}, "--batch"},
      {{"plan", "mlp", "--batch", "1.5"}, "--batch"},
      {{"plan", "mlp", "--batch", "abc"}, "--batch"},
      {{"plan", "mlp", "--batch", "99999999999999999999"}, "--batch"},
      {{"train", "mlp", "--steps", "0"}, "--steps"},
      {{"train", "mlp", "--epochs", "-3"}, "--epochs"},
      {{"train", "mlp", "--seed", "-1"}, "--seed"},
      {{"train", "mlp", "--seed", "18446744073709551616"}, "--seed"},
      {{"train", "mlp", "--learning-rate", "-1"}, "--learning-rate"},
      {{"train", "mlp", "--learning-rate", "nan"}, "--learning-rate"},
      {{"train", "mlp", "--learning-rate", "inf"}, "--learning-rate"},
      {{"train", "mlp", "--learning-rate", "fast"}, "--learning-rate"},
      {{"train", "mlp", "--threads", "0"}, "--threads"},
      {{"train", "mlp", "--threads", "100000"}, "--threads"},
      {{"train", "mlp", "--shuffle", "maybe"}, "--shuffle"},
      {{"plan", "mlp", "--dtype", "int8"}, "--dtype"},
      {{"plan", "mlp", "--optimizer", "lino"}, "lion"},
      {{"plan", "mlp", "--device", "abacus"}, "--device"},
      {{"plan", "mlp", "--device", "cuda:x"}, "--device"},
      {{"plan", "mlp", "--device", "cuda:63"}, "--device cpu"},  // no machine has so many
      {{"plan", "mlp", "--deterministic", "maybe"}, "--deterministic"},
      {{"plan", "mlp", "--nosuch"}, "--nosuch"},
      {{"plan", "mlp", "stray"}, "stray"},
      {{"plan", "mlp", "--run", "x"}, "--run"},  // an option of train only
      {{"plan", "mlp", "--checkpoint-every", "0"}, "--checkpoint-every"},
      {{"train", "mlp", "--resume", "no-such-run"}, "no-such-run/run.json"},
      {{"frobnicate"}, "frobnicate"},
  };
  for (const auto& [words, part] : cases) expect_refused(words, part);
}

TEST(BadUsage, OfWhatIsNotBuiltYetIsRefusedAndSaysSo) {
  const Words cases[] = {
      {"plan", "mlp", "--offload", "auto"},     {"plan", "mlp", "--device", "null:h200"},
      {"plan", "mlp", "--host-memory", "1GiB"}, {"plan", "mlp", "--disk", "1GiB"},
      {"plan", "mlp", "--allow", "float16"},    {"plan", "mlp", "--html", "x.html"},
      {"train", "mlp", "--profile", "1:2"},     {"report", "x"},
  };
  for (const Words& words : cases) expect_refused(words, "not built yet");
  for (const char* split : {"0", "-1", "x", "3", "64", ""})
    EXPECT_EQ(plimsoll({"plan", "mlp", "--split", split}).exit, 2) << split << " parts of 32";
  EXPECT_EQ(plimsoll({"plan", "mlp", "--recompute", "yes"}).exit, 2);
  EXPECT_EQ(plimsoll({"plan", "--graph", "no-such-file.json"}).exit, 2);
  for (const char* option : {"--split", "--recompute", "--offload"})
    EXPECT_EQ(plimsoll({"plan", "mlp", option, "off"}).exit, 0) << option << " off is built";
}

TEST(BadGraph, IsRefusedBeforeAnythingIsPlanned) {
  expect_refused({"plan", "--graph", "no/such/file.json"}, "no/such/file.json");
  expect_refused({"plan", "mlp", "--graph", "x.json"}, "received both");
  expect_refused({"train", "--graph", "x.json"}, "not trained");
}

TEST(BadShape, NamesTheLayer) {
  expect_refused({"plan", "mnist-cnn", "--input", "2x2x1"}, "conv2d");
  expect_refused({"plan", "mnist-cnn", "--input", "9x9x1"}, "max_pooling2d_1");
  expect_refused({"plan", "mnist-cnn", "--input", "784"}, "conv2d");
  expect_refused({"train", "mnist-cnn", "--input", "28x28"}, "conv2d");
  for (const char* input :
       {"0", "-3x2x1", "28x28x", "x", "axb", "1x1x1x1x1", "99999999999999999999", "28,28,1"})
    expect_refused({"plan", "mnist-cnn", "--input", input}, "--input");
  // Too large to exist, too large for this machine: an answer, not a crash.
  for (const char* input : {"16777216x16777216x16777216", "16777216x16777216x1"}) {
    const Finished done = plimsoll({"train", "mnist-cnn", "--input", input, "--json"});
    EXPECT_EQ(done.signal, 0) << input;
    EXPECT_TRUE(done.exit == 2 || done.exit == 3) << input << ": " << done.err;
  }
  expect_refused({"plan", "small-cnn", "--batch", "2147483648"}, "--batch");
  EXPECT_EQ(plimsoll({"plan", "small-cnn", "--batch", "2147483647", "--json"}).exit, 0);
}

// ---- files

std::string images(const TempFolder& folder, const std::string& shape, size_t elements,
                   const std::string& labels, const std::string& label_shape) {
  return write_bytes(folder / "data.npz",
                     zip({{"x.npy", npy_of("|u1", shape, std::string(elements, '\7'))},
                          {"y.npy", npy_of("<i4", label_shape, labels)}}));
}

TEST(BadData, IsRefused) {
  const ::pl::test::TempCache folder;
  auto train = [&](const std::string& file, const char* part, const char* model = "mnist-cnn") {
    expect_refused({"train", model, "--data", file, "--steps", "1"}, part);
    expect_refused({"plan", model, "--data", file}, part);
  };
  train("nosuch", "nosuch");
  train(folder / "missing.npz", "missing.npz");
  train(folder / "", "idx");  // an empty folder
  train("/dev/zero", "/dev/zero");
  const std::string zeros(8, '\0');
  train(images(folder, "(2, 27, 28)", 2 * 27 * 28, zeros, "(2,)"), "conv2d");
  train(images(folder, "(2, 783)", 2 * 783, zeros, "(2,)"), "dense", "mlp");
  train(images(folder, "(2, 28, 28)", 2 * 784, zeros + zeros, "(4,)"), "expected");
  train(images(folder, "(2, 28, 28)", 2 * 784, little(10, 4) + little(0, 4), "(2,)"), "labels");
  train(images(folder, "(2, 28, 28)", 2 * 784, little(0xFFFFFFFF, 4) + little(0, 4), "(2,)"),
        "labels");
  train(images(folder, "(9223372036854775807, 28, 28)", 100, zeros, "(2,)"), "expected");
  train(images(folder, "(4294967296, 4294967296)", 100, zeros, "(2,)"), "expected");
  train(write_bytes(folder / "one.npz", zip({{"x.npy", npy_of("|u1", "(1,)", "a")}})), "y");
  train(write_bytes(folder / "text.npz", "not a zip file at all"), "expected");
  train(write_bytes(folder / "empty.npz", ""), "expected");
  const std::string good = zip({{"x.npy", npy_of("|u1", "(2, 28, 28)", std::string(1568, '\7'))},
                                {"y.npy", npy_of("<i4", "(2,)", zeros)}});
  for (const size_t length : {good.size() - 1, good.size() / 2, size_t{30}})
    train(write_bytes(folder / "cut.npz", good.substr(0, length)), "expected");
  ASSERT_EQ(plimsoll({"train", "mnist-cnn", "--steps", "1", "--data",
                      write_bytes(folder / "good.npz", good)})
                .exit,
            0)
      << "the file that the others are made from is good";
}

std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}

TEST(BadWeights, AreRefused) {
  const TempFolder folder;
  const std::string good = folder / "good.safetensors";
  ASSERT_EQ(plimsoll({"train", "mlp", "--steps", "1", "--save-weights", good}).exit, 0);
  const std::string bytes = ::pl::test::read_bytes(good);
  auto train = [&](const std::string& file, const char* part) {
    expect_refused({"train", "mlp", "--steps", "1", "--weights", file}, part);
  };
  auto written = [&](const std::string& content) {
    return write_bytes(folder / "bad.safetensors", content);
  };
  train(folder / "missing", "missing");
  train(folder.path(), "expected");
  train("/dev/zero", "/dev/zero");
  train(written(""), "expected");
  train(written(bytes.substr(0, 7)), "expected");
  train(written(bytes.substr(0, 100)), "expected");
  train(written(bytes.substr(0, bytes.size() - 1)), "expected");
  train(written(bytes + "x"), "expected");
  train(written(std::string(8, '\xff') + bytes.substr(8)), "expected");  // huge header
  train(written(little(uint64_t{1} << 40, 8) + bytes.substr(8)), "expected");
  const std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  train(written(safetensors("{" + one + "," + one + "}", "1234")), "expected");  // duplicate key
  train(written(safetensors("{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                            "123456")),
        "expected");  // overlap
  train(
      written(safetensors("{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                          std::string(12, '\1'))),
      "expected");  // hole
  train(written(safetensors(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],)"
                            R"("data_offsets":[0,4]}})",
                            "1234")),
        "expected");  // overflow
  train(written(safetensors(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")),
        "expected");
  train(written(safetensors(std::string(100000, '[') + std::string(100000, ']'), "")), "expected");
  train(written(safetensors("{" + one + "}", "1234")), "dense/kernel");  // another model's

  // The right names with a wrong shape: the message has the weight's path.
  SafetensorsFile file(good);
  std::vector<std::vector<char>> data;
  std::vector<NamedBytes> tensors;
  for (const auto& entry : file.entries()) {
    data.emplace_back(static_cast<size_t>(entry.bytes));
    tensors.push_back({entry.name, entry.meta, data.back().data()});
  }
  for (NamedBytes& tensor : tensors)
    if (tensor.name == "dense_1/kernel") tensor.meta.shape = Shape{256, 1024};
  const std::string wrong = folder / "wrong.safetensors";
  write_safetensors(wrong, tensors);
  train(wrong, "dense_1/kernel");
  expect_refused({"train", "mlp", "--steps", "1", "--dtype", "float64", "--weights", good},
                 "dense/kernel");
  EXPECT_EQ(plimsoll({"train", "mlp", "--steps", "1", "--weights", good}).exit, 0);
}

TEST(BadRun, FolderThatCannotBeMadeIsRefusedBeforeTheFirstStep) {
  const TempFolder folder;
  const std::string file = write_bytes(folder / "file", "in the way");
  const Finished done =
      plimsoll({"train", "mlp", "--steps", "1", "--json", "--run", file + "/run"});
  EXPECT_EQ(done.exit, 2) << done.err;
  EXPECT_TRUE(done.event("step").is_null());
}

TEST(NotANumber, EndsWithExitCodeOne) {
  for (const char* model : {"mlp", "mnist-cnn"}) {
    const Finished done =
        plimsoll({"train", model, "--learning-rate", "1e30", "--steps", "20", "--json"});
    EXPECT_EQ(done.signal, 0);
    EXPECT_EQ(done.exit, 1) << model << done.err;
    EXPECT_NE(done.err.find("not finite"), std::string::npos) << done.err;
    const Json end = done.event("end");
    ASSERT_TRUE(end.is_object()) << "the end is reported all the same";
    if (end.at("loss_last", "end").is_null()) {
      EXPECT_LT(integer_at(end, "steps"), 20) << "it stops at the first such loss";
    }
  }
}

// Loss scaling leaves steps out, which mends an overflow but no divergence.
TEST(NotANumber, EndsScaledTrainingWithExitCodeOneAndTheLayer) {
  const Finished done = plimsoll({"train", "mlp", "--dtype", "mixed_float16", "--learning-rate",
                                  "1e6", "--steps", "30", "--json"});
  EXPECT_EQ(done.exit, 1) << done.err;
  EXPECT_NE(done.err.find("step 11: the loss is not finite: "), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("is the first layer whose output has"), std::string::npos) << done.err;
  EXPECT_EQ(integer_at(done.event("end"), "steps"), 11);
}

TEST(Mistakes, AreNamedWithTheWordThatWasMeant) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"tran", "mlp"}, "expected a command, received 'tran'; did you mean train?"},
      {{"train", "mlp", "--bacth", "3"}, "--bacth: expected an option that `plimsoll train` has"},
      {{"train", "mlp", "--bacth", "3"}, "did you mean --batch?"},
      {{"plan", "mlp", "--memroy=3GiB"}, "did you mean --memory?"},
      {{"train", "mlp", "--steps"}, "--steps: expected a value, received none"},
      {{"plan", "mlp", "--batch", "1", "--batch", "2"}, "--batch: expected once, received it"},
      {{"plan", "mlp", "--batch=1", "--steps", "2", "--batch", "1"}, "given twice"},
      {{"train", "mlp", "--resume", "a", "--resume", "b"}, "--resume: expected once"},
      {{"data", "synthetic", "--batch", "1", "--batch", "2"}, "given twice"},
      {{"bench", "--threads", "1", "--threads", "2"}, "given twice"},
      {{"train", "mlp", "mlp"}, "received more words: mlp"},
      {{"plan", "mlp", "--xyzzy"}, "received this one; see plimsoll plan --help"}};
  for (const auto& [words, part] : cases) {
    const Finished done = plimsoll(words);
    EXPECT_EQ(done.exit, 2);
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
  }
}

TEST(Help, TeachesAndSucceeds) {
  for (const Words& words :
       {Words{"--help"}, Words{"plan", "--help"}, Words{"train", "--help"}, Words{}}) {
    const Finished done = plimsoll(words);
    EXPECT_EQ(done.exit, 0);
    EXPECT_GT(done.out.size() + done.err.size(), 300u);
  }
  EXPECT_EQ(plimsoll({"--version"}).exit, 0);
  const std::string help = plimsoll({"train", "--help"}).out;
  EXPECT_EQ(help.find("exact"), std::string::npos) << "a split of the batch moves bits of sums";
  EXPECT_NE(help.find("moves the last bits"), std::string::npos) << help;
}

}  // namespace
}  // namespace pl::test::bad_input_test

// gpt-tiny as a user trains it: ten losses against PyTorch's from the same weights on the same
// tokens (tests/golden/torch_gpt.py made the answers), text files, and what is wrong with them.
#include <cmath>

#include "data/safetensors.h"
#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::gpt_test {
namespace {

using ::pl::test::little;

uint32_t hashed(uint32_t salt, uint32_t i) {
  uint32_t x = i + salt * 0x9E3779B1u;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

std::string bytes_of(double value, Dtype dtype) {
  if (dtype == Dtype::float64) return little(std::bit_cast<uint64_t>(value), 8);
  return little(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
}

// uniform in [centre - 2^exponent, centre + 2^exponent), rounded to float32.
void write_weights(const Json& list, Dtype dtype, const std::string& path) {
  std::vector<std::string> data;
  std::vector<NamedBytes> tensors;
  for (const Json& weight : list.as_array("weights")) {
    const auto salt = static_cast<uint32_t>(data.size());
    std::vector<Dim> dims;
    for (const Json& dim : weight.at("shape", "weight").as_array("shape"))
      dims.push_back(dim.as_integer("shape"));
    const Meta meta{dtype, Shape(std::move(dims))};
    const auto exponent = static_cast<int>(integer_at(weight, "exponent"));
    const auto centre = static_cast<float>(integer_at(weight, "centre"));
    std::string bytes;
    for (int64_t i = 0; i < meta.elements(); ++i) {
      const double whole = static_cast<double>(hashed(salt, static_cast<uint32_t>(i)) >> 8);
      const float spread = static_cast<float>(std::ldexp(whole - 8388608.0, exponent - 23));
      bytes += bytes_of(static_cast<double>(spread + centre), dtype);
    }
    data.push_back(std::move(bytes));
    tensors.push_back({weight.at("name", "weight").as_string("name"), meta, nullptr});
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = data[i].data();
  write_safetensors(path, tensors);
}

// x and y int32 (batch, length): y is x moved on by one token.
void write_tokens(uint32_t salt, int64_t batch, int64_t length, uint32_t vocabulary,
                  const std::string& path) {
  std::string x, y;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t <= length; ++t) {
      const uint32_t place = static_cast<uint32_t>(b * (length + 1) + t);
      const std::string token = little(hashed(salt, place) % vocabulary, 4);
      if (t < length) x += token;
      if (t > 0) y += token;
    }
  const std::string shape = "(" + std::to_string(batch) + ", " + std::to_string(length) + ")";
  ::pl::test::write_bytes(path, ::pl::test::zip({{"x.npy", ::pl::test::npy_of("<i4", shape, x)},
                                                 {"y.npy", ::pl::test::npy_of("<i4", shape, y)}}));
}

std::vector<double> step_losses(const Finished& done) {
  std::vector<double> losses;
  for (const Json& line : done.lines())
    if (line.at("event", "line") == Json("step"))
      losses.push_back(line.at("loss", "step").as_real("loss"));
  return losses;
}

void expect_agreement(size_t index, double tolerance) {
  const Json answers =
      parse_json(::pl::test::read_bytes(::pl::test::golden("torch_gpt.json")), "torch_gpt.json");
  const Json& one = answers.at("cases", "answers").as_array("cases")[index];
  const std::string dtype = one.at("dtype", "case").as_string("dtype");
  const int64_t batch = integer_at(one, "batch"), length = integer_at(one, "length");
  const TempFolder folder;
  write_weights(one.at("weights", "case"), *dtype_from_name(dtype), folder / "w.safetensors");
  write_tokens(static_cast<uint32_t>(integer_at(answers, "token_salt")), batch, length,
               static_cast<uint32_t>(integer_at(answers, "vocabulary")), folder / "batch.npz");
  const Finished done =
      plimsoll({"train", "gpt-tiny", "--input", std::to_string(length), "--batch",
                std::to_string(batch), "--dtype", dtype, "--epochs", "10", "--shuffle", "off",
                "--weights", folder / "w.safetensors", "--data", folder / "batch.npz", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const std::vector<double> ours = step_losses(done);
  const auto& answer = one.at("losses", "case").as_array("losses");
  ASSERT_EQ(ours.size(), answer.size());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double theirs = answer[i].as_real("loss"), relative = std::fabs(ours[i] / theirs - 1);
    worst = std::max(worst, relative);
    EXPECT_LE(relative, tolerance) << "step " << i + 1 << ": " << ours[i] << ", torch " << theirs;
  }
  EXPECT_LT(ours.back(), ours.front() * 0.6) << "an answer without training is none";
  std::printf("largest relative difference %.2g\n", worst);
  ::testing::Test::RecordProperty("largest_relative_difference", std::to_string(worst));
}

TEST(TorchLosses, OfGptTiny) { expect_agreement(0, 1e-5); }
TEST(TorchLosses, OfGptTinyInFloat64) { expect_agreement(1, 1e-9); }

TEST(Gpt, StartsNearTheLossOfGuessingOnSyntheticTokens) {
  const Finished done =
      plimsoll({"train", "gpt-tiny", "--input", "32", "--batch", "2", "--steps", "3", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const std::vector<double> losses = step_losses(done);
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_NEAR(losses[0], std::log(1024.0), 0.2);
  EXPECT_LT(losses[2], losses[0]);
  const Json end = done.event("end");
  EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
}

std::string rhyme(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += i % 2 ? "the cat sat on the mat.\n" : "so did the rat.\n";
  return text;
}

TEST(Gpt, LearnsATextAndReportsItsLastTenth) {
  const TempFolder folder;
  ::pl::test::write_bytes(folder / "rhyme.txt", rhyme(60));
  const Finished done =
      plimsoll({"train", "gpt-tiny", "--input", "24", "--batch", "4", "--epochs", "3", "--data",
                folder / "rhyme.txt", "--save-weights", folder / "w.safetensors", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  std::vector<Json> epochs;
  for (const Json& line : done.lines())
    if (line.at("event", "line") == Json("epoch")) epochs.push_back(line);
  ASSERT_EQ(epochs.size(), 3u);
  auto real = [](const Json& epoch, const char* key) {
    return epoch.at(key, "epoch").as_real(key);
  };
  EXPECT_LT(real(epochs[2], "val_loss"), real(epochs[0], "val_loss"));
  EXPECT_GT(real(epochs[2], "val_accuracy"), 0.2);
  EXPECT_LE(real(epochs[2], "accuracy"), 1.0);
  // The weights carry on where they were left.
  const Finished more =
      plimsoll({"train", "gpt-tiny", "--input", "24", "--batch", "4", "--steps", "1", "--data",
                folder / "rhyme.txt", "--weights", folder / "w.safetensors", "--json"});
  ASSERT_EQ(more.exit, 0) << more.err;
  EXPECT_LT(step_losses(more)[0], real(epochs[0], "loss"));
}

TEST(Gpt, RefusesTextsThatItCannotRead) {
  const TempFolder folder;
  auto refused = [&](const Words& words, const std::string& part) {
    const Finished done = plimsoll(words);
    EXPECT_EQ(done.exit, 2) << done.err;
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
  };
  ::pl::test::write_bytes(folder / "empty.txt", "");
  ::pl::test::write_bytes(folder / "short.txt", rhyme(1));
  ::pl::test::write_bytes(folder / "text.txt", rhyme(80));
  refused({"train", "gpt-tiny", "--data", folder / "empty.txt"}, "257 characters");
  refused({"train", "gpt-tiny", "--data", folder / "short.txt"}, "257 characters");
  refused({"train", "gpt-tiny", "--data", folder / "none.txt"}, "none.txt");
  refused({"train", "mlp", "--data", folder / "text.txt"}, "a model of tokens");
  refused({"train", "gpt-tiny", "--input", "8x8"}, "tokens (T,)");
  write_tokens(1, 2, 16, 2000, folder / "large.npz");
  refused({"train", "gpt-tiny", "--input", "16", "--data", folder / "large.npz"},
          "tokens from 0 to 1023");
}

TEST(Gpt, ModelsListsWeightsUnderGpt2sNames) {
  const Finished done = plimsoll({"models", "gpt2", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json model = done.lines()[0];
  // 124.4 million, and 47 rows that pad the vocabulary.
  EXPECT_EQ(integer_at(model, "parameters"), 124439808 + 47 * 768);
  for (const char* name : {"wte/embeddings", "wpe/embeddings", "block_0/ln_1/gamma",
                           "block_0/attn/qkv/kernel", "block_11/mlp/proj/bias", "ln_f/beta"})
    EXPECT_NE(done.out.find("\"" + std::string(name) + "\""), std::string::npos) << name;
  EXPECT_EQ(done.out.find("head/"), std::string::npos) << "the head has no weights of its own";
}

}  // namespace
}  // namespace pl::test::gpt_test

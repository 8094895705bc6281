// All examples run, and print what they promise.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "backend/cpu/onednn.h"
#include "base/file.h"
#include "tests/places.h"

namespace pl::test::examples_test {
namespace {

std::string output_of(const std::string& name, const std::string& words = "") {
  const std::string command =
      "OMP_WAIT_POLICY=passive " + ::pl::test::example(name) + " " + words + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  char part[512];
  while (std::fgets(part, sizeof part, pipe)) text += part;
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  return text;
}

// The number behind `words`.
double number_behind(const std::string& text, const std::string& words) {
  const size_t at = text.rfind(words);
  EXPECT_NE(at, std::string::npos) << words << " is not in:\n" << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

TEST(Examples, Eager) {
  const std::string text = output_of("eager");
  EXPECT_NE(text.find("y 24, dy/dx 12, d2y/dx2 12\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[runtime] expected 256.0 MiB for a value within memory = 64.0 MiB"),
            std::string::npos)
      << text;
}

TEST(Examples, CustomTraining) {
  const std::string text = output_of("custom_training");
  EXPECT_LT(number_behind(text, "epoch 60: loss "), 0.2) << text;
  EXPECT_EQ(number_behind(text, "traced "), 1) << text;
}

TEST(Examples, DeviceCnn) {
  const std::string text = output_of("device_cnn");
  EXPECT_LT(number_behind(text, ", then "), number_behind(text, "cpu: loss ")) << text;
  EXPECT_LT(number_behind(text, "by hand at loss "), number_behind(text, "cpu: loss ")) << text;
}

TEST(Examples, TapeRelease) {
  const std::string text = output_of("tape_release");
  const double before = number_behind(text, "before ");
  EXPECT_GT(number_behind(text, "recorded "), before + 15);
  EXPECT_LT(number_behind(text, "after gradient(), tape still in scope "), before + 1);
  EXPECT_GT(number_behind(text, "persistent, after two gradients "), before + 15);
  EXPECT_LT(number_behind(text, "after reset() "), before + 1);
  EXPECT_LT(number_behind(text, "out of scope "), before + 1);
}

TEST(Examples, Checkpointing) {
  const std::string text = output_of("checkpointing");
  EXPECT_LT(number_behind(text, "by hand     planned "),
            0.6 * number_behind(text, "as it is           planned "))
      << text;
  EXPECT_NE(text.find("the same numbers"), std::string::npos) << text;
}

TEST(Examples, TrainStep) {
  const std::string text = output_of("train_step");
  EXPECT_LT(number_behind(text, ", then "), 0.5 * number_behind(text, "loss ")) << text;
  EXPECT_EQ(number_behind(text, "planned "), number_behind(text, "used ")) << text;
}

TEST(Examples, ReducedLayer) {
  const std::string text = output_of("reduced_layer");
  EXPECT_LT(number_behind(text, "reduced "), number_behind(text, "loop ")) << text;
}

TEST(Examples, Hello) { EXPECT_GT(number_behind(output_of("hello"), "accuracy "), 0.95); }

TEST(Examples, InMemory) {
  const std::string text = output_of("in_memory");
  EXPECT_GT(number_behind(text, "validation accuracy "), 0.97) << text;
}

TEST(Examples, Generator) {
  const std::string text = output_of("generator");
  EXPECT_GT(number_behind(text, "\naccuracy "), 0.9) << text;
}

TEST(Examples, MixedPrecision) {
  const std::string text = output_of("mixed_precision");
  // Without instructions for bfloat16 products work on widened copies, which are planned too.
  if (onednn_multiplies(Dtype::bfloat16)) {
    EXPECT_LT(number_behind(text, "mixed_bfloat16 "), 0.75 * number_behind(text, "float32 "))
        << text;
  } else {
    std::puts("bfloat16 is not native here: its memory is not compared with float32's");
  }
  EXPECT_GT(number_behind(text, "accuracy "), 0.95) << text;
}

// Ours equal the large batch; the widely copied loop does not.
TEST(Examples, GradientAccumulation) {
  const std::string text = output_of("gradient_accumulation");
  const auto line = [&](const std::string& way) {
    const size_t at = text.find(way);
    EXPECT_NE(at, std::string::npos) << text;
    return text.substr(at, text.find('\n', at) - at);
  };
  for (const char* way :
       {"gradient_accumulation_steps = 4", "worked off in 4", "a loop with an accumulator"})
    EXPECT_LT(number_behind(line(way), "weights differ by "), 1e-5) << text;
  EXPECT_GT(number_behind(line("zeroed every step"), "weights differ by "), 0.1) << text;
  EXPECT_GT(number_behind(line("zeroed every step"), "loss "),
            1.2 * number_behind(line("batches of 256"), "loss "))
      << text;
}

TEST(Examples, LoopLayer) {
  const std::string text = output_of("loop_layer", "64MiB 512");
  EXPECT_LT(number_behind(text, "measured "), number_behind(text, "memory: planned ")) << text;
  EXPECT_LT(number_behind(text, "loss "), 2.4) << text;
}

TEST(Examples, LargeImage) {
  const std::string text = output_of("large_image", "256 24MiB");
  EXPECT_GT(number_behind(text, "\n2 steps, loss "), 0) << text;
  EXPECT_LT(number_behind(text, "measured "), 24) << text;
  EXPECT_GT(number_behind(text, "unlimited: "), 24) << text;
}

TEST(Examples, GenerateLearnsAText) {
  const std::string folder = testing::TempDir() + "/generate_example";
  std::filesystem::create_directories(folder);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "she sells sea shells by the sea shore; ";
  write_file_atomically(folder + "/text.txt", text);
  const std::string made = output_of("generate", "--data " + folder +
                                                     "/text.txt --window 16 --batch 16 --length 12 "
                                                     "--prompt 'she sells '");
  EXPECT_NE(made.find("she sells "), std::string::npos) << made;
  std::filesystem::remove_all(folder);
}

class OnFashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
      GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
};
using ExamplesOnFashionMnist = OnFashionMnist;

TEST_F(ExamplesOnFashionMnist, StreamingImages) {
  const std::string text = output_of("streaming_images");
  EXPECT_GT(number_behind(text, "test accuracy "), 0.84) << text;
  EXPECT_LT(number_behind(text, "60000 images in "), 32) << text;
}

TEST_F(ExamplesOnFashionMnist, SmallCnn) {
  const std::string text = output_of("small_cnn", "0 2000");
  EXPECT_NE(text.find("Total params"), std::string::npos) << text;
  EXPECT_GT(number_behind(text, "test accuracy "), 0.6) << text;
}

TEST_F(ExamplesOnFashionMnist, Mnist) {
  const std::string text = output_of("mnist", "0 2000");
  EXPECT_GT(number_behind(text, "test accuracy "), 0.5) << text;
}

}  // namespace
}  // namespace pl::test::examples_test

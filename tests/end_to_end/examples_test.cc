// The short examples run, and print what they promise.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "tests/places.h"

namespace pl::test {
namespace {

std::string output_of(const std::string& name) {
  const std::string command = "OMP_WAIT_POLICY=passive " + ::pl::test::example(name) + " 2>&1";
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

}  // namespace
}  // namespace pl::test

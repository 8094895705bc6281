#include "data/function_source.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace pl::function_source_test {
namespace {

std::vector<Field> fields() {
  return {{"x", {Dtype::float32, {2}}, {}, Role::x},
          {"y", {Dtype::int32, {}}, ValueRange{0, 3}, Role::y}};
}

TEST(FunctionSource, MakesSamplesInPlace) {
  const auto source = function_source(fields(), 10, [](int64_t i, std::span<void* const> to) {
    if (to[0]) {
      static_cast<float*>(to[0])[0] = static_cast<float>(i);
      static_cast<float*>(to[0])[1] = static_cast<float>(-i);
    }
    if (to[1]) *static_cast<int32_t*>(to[1]) = static_cast<int32_t>(i % 5);
  });
  const int64_t indices[] = {7, 2, 0};
  float x[6] = {};
  int32_t y[3] = {-1, -1, -1};
  void* both[] = {x, y};
  source->read(indices, both);
  EXPECT_EQ(std::vector<float>(x, x + 6), (std::vector<float>{7, -7, 2, -2, 0, 0}));
  EXPECT_EQ(std::vector<int32_t>(y, y + 3), (std::vector<int32_t>{2, 2, 0}));

  float alone[6] = {};
  void* only_x[] = {alone, nullptr};
  source->read(indices, only_x);
  EXPECT_EQ(alone[2], 2);

  const int64_t bad[] = {1, 9};  // 9 % 5 = 4
  try {
    source->read(bad, both);
    FAIL() << "expected DataError";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "[data] function: sample 9: expected y from 0 to 3, received 4");
  }
}

TEST(FunctionSource, RefusesWhatHasNoSignature) {
  const auto nothing = [](int64_t, std::span<void* const>) {};
  EXPECT_THROW(function_source({}, 1, nothing), DataError);
  EXPECT_THROW(function_source(fields(), 0, nothing), DataError);
  EXPECT_THROW(function_source(fields(), 1, nullptr), DataError);
  std::vector<Field> no_range = fields();
  no_range[1].range.reset();
  EXPECT_THROW(function_source(no_range, 1, nothing), DataError);
}

}  // namespace
}  // namespace pl::function_source_test

// Eager values, tapes and functions on a device that is not the host.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/eager_runs.h"
#include "tests/on_device.h"
#include "tests/patterns.h"

namespace pl::test::device_values_test {
namespace {

TEST_F(OnDevice, ValuesStayThereUntilTheyAreRead) {
  Runtime runtime({.threads = 1});
  const Tensor x = pattern({64, 32}, 1), w = pattern({32, 16}, 2);
  const Tensor here = tanh(matmul(x, w));
  Tensor there;
  {
    const auto scope = device(kName);
    there = tanh(matmul(x, w));
  }
  EXPECT_EQ(there.buffer()->space(), space_);
  EXPECT_TRUE(same_bits(here, there));
  EXPECT_EQ(there.data(), there.data()) << "one copy";
  // Without a scope an op runs where its operands are, in one for the processor there.
  EXPECT_EQ(square(there).buffer()->space(), space_);
  const auto scope = device("cpu");
  EXPECT_EQ(square(there).buffer()->space(), nullptr);
  EXPECT_TRUE(same_bits(square(there), square(here)));
}

TEST_F(OnDevice, MemoryIsHardAndGoesBack) {
  const Bytes before = held();
  {
    Runtime runtime({.threads = 1, .device_memory = "16MiB"});
    const auto scope = device(kName);
    Tensors values;
    for (int i = 0; i < 3; ++i) values.push_back(fill({1024, 1024}, i));  // 4 MiB each
    std::vector<Tensor> small;
    for (int i = 0; i < 100; ++i) small.push_back(fill({7}, i));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(small[static_cast<size_t>(i)].data_as<float>()[6], i);
    EXPECT_LE(held() - before, 16 * kMiB + 32 * kKiB);
    EXPECT_EQ(runtime.device_memory().used, 14 * kMiB);
    try {
      fill({1024, 1024}, 9);
      ADD_FAILURE() << "nothing thrown";
    } catch (const DoesNotFit& error) {
      EXPECT_NE(std::string(error.what()).find("device_memory = 16.0 MiB"), std::string::npos)
          << error.what();
    }
    values.pop_back();
    EXPECT_EQ(fill({1024, 1024}, 9).data_as<float>()[5], 9);
  }
  EXPECT_EQ(held(), before);
}

TEST_F(OnDevice, TapesAndOptimisersHaveTheBitsOfTheProcessor) {
  auto train = [&](const char* where) {
    Runtime runtime({.threads = 1});
    const auto scope = device(where);
    const Variable w(pattern({8, 4}, 1), {.name = "w"}), b(fill({4}, 0.1), {.name = "b"});
    const auto adam = Adam({.learning_rate = 0.01});
    const Tensor x = pattern({16, 8}, 2), kept = w.value();
    for (int step = 0; step < 5; ++step) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(tanh(matmul(x, w, {}, b))));
      const Tensors g = tape.gradient(loss, {w, b});
      adam->apply_gradients({{g[0], w}, {g[1], b}});
      w.assign_add(scale(g[0], 0.5));
    }
    EXPECT_TRUE(same_bits(kept, pattern({8, 4}, 1))) << "what was read stays as it was";
    EXPECT_EQ(w.value().buffer()->space() != nullptr, std::string(where) != "cpu");
    Tensor copy(w.meta());
    std::memcpy(copy.data(), w.value().data(), static_cast<size_t>(w.meta().bytes()));
    EXPECT_EQ(adam->iterations(), 5);
    return copy;
  };
  EXPECT_TRUE(same_bits(train("cpu"), train(kName)));
}

TEST_F(OnDevice, FunctionsRunThere) {
  auto train = [&](const char* where) {
    Runtime runtime({.threads = 1});
    const auto scope = device(where);
    const Variable w(pattern({8, 4}, 1), {.name = "w"});
    const Tensor constant = pattern({16, 4}, 3);
    const auto adam = Adam({.learning_rate = 0.01});
    auto step = pl::function([&](const Tensor& x) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(subtract(tanh(matmul(x, w)), constant)));
      adam->apply_gradients({{tape.gradient(loss, {w})[0], w}});
      return Tensors{loss, w.value()};
    });
    Tensors last;
    for (int i = 0; i < 4; ++i) last = step(pattern({16, 8}, i));
    EXPECT_EQ(last[0].buffer()->space() != nullptr, std::string(where) != "cpu");
    Tensors copies;
    for (const Tensor& value : last)
      std::memcpy(copies.emplace_back(value.meta()).data(), value.data(),
                  static_cast<size_t>(value.meta().bytes()));
    EXPECT_EQ(step.traces(), 1);
    return copies;
  };
  const Tensors cpu = train("cpu"), there = train(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i]));

  Runtime runtime({.threads = 1});
  const Variable host(pattern({8, 4}, 1), {.name = "host"});
  auto wrong = pl::function([&](const Tensor& x) { return matmul(x, host); });
  const auto scope = device(kName);
  EXPECT_THROW(wrong(pattern({16, 8}, 1)), UserError);
}

// Those who were made on their own find the same device by its name, while one of them lives.
TEST_F(OnDevice, OfOneNameIsOpenOnce) {
  const Device one = device_from_name(kName);
  EXPECT_EQ(Devices::current()->open(one), space_);
  Runtime runtime({.threads = 1});
  EXPECT_EQ(device(kName).space(), space_);
  const auto others = std::make_shared<Devices>();
  const auto same_name = others->share(one, std::make_shared<test::FakeDevice>());
  EXPECT_EQ(others->open(one), same_name);
  EXPECT_EQ(Devices::current()->open(one), space_);
}

TEST(NoDevice, IsSaidWithARemedy) {
  Sequential model(Shape{4}, {Dense(3)});
  try {
    model.compile({.loss = "mse", .device = "cuda:63"});
    ADD_FAILURE() << "nothing thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("compile({.device = \"cpu\"})"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace pl::test::device_values_test

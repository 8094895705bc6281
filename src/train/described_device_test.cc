// `plan --calls FILE`: a device that is not here is planned for as if it were.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "execute/call_file.h"
#include "model/builtin.h"
#include "tests/fake_device.h"
#include "train/session.h"

namespace pl::described_device_test {
namespace {

class DescribedDevice : public ::testing::Test {
 protected:
  DescribedDevice() {
    char folder[] = "/tmp/plimsoll-calls-XXXXXX";
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/calls.txt";
  }
  ~DescribedDevice() override { std::filesystem::remove_all(folder_); }

  static SessionPlan plan(Backend& backend, const std::shared_ptr<PlanMemory>& memory) {
    const Compiled compiled{optimizer_from_name("adam"),
                            loss_from_name("sparse_categorical_crossentropy"),
                            {"accuracy"},
                            Dtype::float32};
    return plan_session(find_builtin("mlp").build(Shape{784}, 10), compiled, backend,
                        {{StepKind::train, 32}},
                        {{{Dtype::float32, Shape{784}}}, {{Dtype::int32, Shape{}}}, 1, true}, 0,
                        nullptr, {.all = true, .memory = memory});
  }

  std::string folder_, path_;
};

TEST_F(DescribedDevice, PlansAreThoseOfTheDevice) {
  test::FakeDevice device(DeviceKind::cuda);
  device.bits = "sm_1, 2 multiprocessors, not deterministic";
  const auto memory = std::make_shared<PlanMemory>(device);
  const SessionPlan there = plan(device, memory);
  write_calls(path_, {.machine = "a GPU elsewhere",
                      .numerics = device.numerics(),
                      .deterministic = false,
                      .held = *memory->device_held,
                      .alignment = device.alignment(),
                      .granule = device.granule(),
                      .calls = memory->book.known_calls()});

  CallFile file = read_calls(path_);
  const std::unique_ptr<Backend> described = described_device(file);
  EXPECT_EQ(described->machine(), "a GPU elsewhere");
  EXPECT_FALSE(file.deterministic);
  const auto known = std::make_shared<PlanMemory>(*described);
  known->device_held = file.held;
  known->book.know(std::move(file.calls), true);
  const SessionPlan here = plan(*described, known);
  EXPECT_EQ(here.arena, there.arena);
  EXPECT_EQ(here.prepared[0].plan.numerics, there.prepared[0].plan.numerics);
  EXPECT_EQ(here.process(), there.process());
  EXPECT_EQ(here.frontier.back().process(), there.frontier.back().process());
  EXPECT_NEAR(here.ms, there.ms, 0.02 * there.ms);
}

TEST_F(DescribedDevice, FilesThatAreCutOffAreRefused) {
  test::FakeDevice device(DeviceKind::cuda);
  const auto memory = std::make_shared<PlanMemory>(device);
  plan(device, memory);
  write_calls(path_, {.machine = "a GPU", .calls = memory->book.known_calls()});
  const std::string text = read_text_file(path_, 64 * kMiB);
  for (size_t bytes : {size_t{0}, size_t{10}, text.size() / 2, text.size() - 2}) {
    write_file_atomically(path_, text.substr(0, bytes));
    EXPECT_THROW(read_calls(path_), DataError) << bytes;
  }
}

}  // namespace
}  // namespace pl::described_device_test

// `plan --calls FILE` where the device is not: figures are of the mode that the file was written
// in.
#include "execute/call_file.h"
#include "model/builtin.h"
#include "tests/end_to_end/command.h"
#include "tests/fake_device.h"
#include "train/samples.h"
#include "train/session.h"

namespace pl::test::calls_test {
namespace {

// What a device that is not deterministic says of mlp's calls.
void write_mlp(const std::string& path) {
  FakeDevice device(DeviceKind::cuda);
  const auto memory = std::make_shared<PlanMemory>(device);
  const BuiltinModel& model = find_builtin("mlp");
  const Network network = model.build(model.input, model.classes);
  Compiled compiled{optimizer_from_name("adam"),
                    loss_from_name("sparse_categorical_crossentropy"),
                    {"accuracy"},
                    Dtype::float32};
  compiled.loss.from_logits = model.logits;
  SampleSpec sample = wanted_sample(network, compiled);
  sample.resident = true;
  plan_session(network, compiled, device, {{StepKind::train, 32}}, sample, 0, nullptr,
               {.all = true, .memory = memory});
  write_calls(path, {.machine = "a GPU elsewhere",
                     .numerics = "its bits",
                     .deterministic = false,
                     .held = *memory->device_held,
                     .alignment = device.alignment(),
                     .granule = device.granule(),
                     .calls = memory->book.known_calls()});
}

Finished plan_with(const std::string& path, const Words& more) {
  const TempFolder folder;
  Words words{"/usr/bin/env",
              "CUDA_VISIBLE_DEVICES=",
              binary(),
              "plan",
              "mlp",
              "--device",
              "cuda",
              "--calls",
              path};
  words.insert(words.end(), more.begin(), more.end());
  return run_words(words, folder);
}

TEST(Calls, OfAnotherModeAreRefused) {
  const TempFolder folder;
  const std::string path = folder / "calls.txt";
  write_mlp(path);
  const Finished refused = plan_with(path, {"--deterministic", "on"});
  EXPECT_EQ(refused.exit, 2) << refused.err;
  EXPECT_NE(refused.err.find("--deterministic: expected off"), std::string::npos) << refused.err;
  for (const Words& more : {Words{"--json"}, Words{"--json", "--deterministic", "off"}}) {
    const Finished done = plan_with(path, more);
    ASSERT_EQ(done.exit, 0) << done.err;
    const Json plan = done.lines().at(0);
    EXPECT_EQ(plan.at("deterministic", "plan"), Json(false));
    EXPECT_GE(integer_at(plan.at("device_bill", "plan"), "context_bytes"), FakeDevice::kContext);
  }
}

}  // namespace
}  // namespace pl::test::calls_test

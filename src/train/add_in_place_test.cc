// Residual sums take no bytes of their own: where an operand of a sum dies with it, the sum lies in
// that operand's place.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "model/builtin.h"
#include "train/samples.h"
#include "train/session.h"

namespace pl::test::add_in_place_test {
namespace {

struct Sums {
  int all = 0, could = 0, in_place = 0;
};

bool is_sum(const Node& node) {
  if (node.op == "add" || node.op == "batch_norm_add") return true;
  return node.op == "fused_pointwise" &&
         node.attrs.text("program").find("add") != std::string::npos;
}

// Counts the sums of samples in a plan, those with an operand of their size that is not read
// again (and may be overwritten, says the catalogue), and those that lie in such an operand's
// place.
Sums count_sums(const Graph& graph, const Plan& plan) {
  Sums sums;
  auto read_again = [&](size_t s, ByteOffset at) {
    for (size_t later = s + 1; later < plan.steps.size(); ++later) {
      const Step& step = plan.steps[later];
      if (std::find(step.in.begin(), step.in.end(), at) != step.in.end()) return true;
      if (std::find(step.out.begin(), step.out.end(), at) != step.out.end()) return false;
    }
    return std::find(plan.keep_at.begin(), plan.keep_at.end(), at) != plan.keep_at.end();
  };
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const Node& node = graph.nodes[index(step.node)];
    if (node.loop >= 0 || !is_sum(node)) continue;
    const Value& out = graph.values[index(node.out[0])];
    ++sums.all;
    bool could = false, taken = false;
    for (const InOut& pair : get_op(node.op).in_place) {
      if (pair.out != 0 || index(pair.in) >= node.in.size()) continue;
      const Value& in = graph.values[index(node.in[index(pair.in)])];
      if (in.variable >= 0 || in.meta.bytes() != out.meta.bytes()) continue;
      taken = taken || step.in[index(pair.in)] == step.out[0];
      could = could || !read_again(s, step.in[index(pair.in)]);
    }
    sums.could += could || taken;
    sums.in_place += taken;
  }
  return sums;
}

class AddInPlace : public ::testing::TestWithParam<const char*> {};

TEST_P(AddInPlace, WhereAnOperandDies) {
  CpuBackend backend(2);
  const BuiltinModel& model = find_builtin(GetParam());
  const Shape input = model.input.rank() == 3 ? Shape{64, 64, 3} : model.input;
  const Network network = model.build(input, model.classes);
  Compiled compiled{
      Adam(), loss_from_name("sparse_categorical_crossentropy"), {"accuracy"}, Dtype::float32};
  compiled.loss.from_logits = model.logits;
  const SampleSpec sample = wanted_sample(network, compiled);
  const SessionPlan plan =
      plan_session(network, compiled, backend, {{StepKind::train, 4}}, sample, 0);
  const Sums sums = count_sums(plan.prepared[0].graph, plan.prepared[0].plan);
  EXPECT_GE(sums.all, 8);
  EXPECT_GE(sums.could, 4);
  EXPECT_EQ(sums.in_place, sums.could);
  RecordProperty("sums", sums.all);
}

INSTANTIATE_TEST_SUITE_P(Models, AddInPlace,
                         ::testing::Values("gpt-tiny", "resnet18", "mobilenet-v2", "densenet121"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pl::test::add_in_place_test

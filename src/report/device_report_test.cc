// The bill of a device's memory, as people and programs read it.
#include <gtest/gtest.h>

#include "report/plan_report.h"

namespace pl::device_report_test {
namespace {

PlanReport report_on_device() {
  PlanReport report;
  report.model = "a-model";
  report.optimizer = "adam";
  report.device = "cuda:0";
  report.on_device = true;
  report.batch = 8;
  report.arena = report.bound = 100 * kMiB;
  report.categories[static_cast<size_t>(Category::parameters)] = 100 * kMiB;
  report.bill = {.context = 500 * kMiB,
                 .code = 6 * kMiB,
                 .recordings = 3 * kMiB,
                 .page_tables = 2 * kMiB,
                 .rounding = kMiB};
  report.ahead = 4 * kMiB;
  report.fixed = report.bill.sum() + report.ahead;
  report.process = report.arena + report.fixed;
  report.pipeline = 3 * kGiB;  // of the host: more than the device has
  report.host_bill = {.state = 10 * kMiB,
                      .activations = 20 * kMiB,
                      .staging = 30 * kMiB,
                      .copy = 40 * kMiB,
                      .pipeline = 3 * kGiB};
  return report;
}

void expect_line(const std::string& text, const std::string& name, Bytes bytes) {
  const size_t at = text.find("  " + name + " ");
  ASSERT_NE(at, std::string::npos) << name << " in\n" << text;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  EXPECT_NE(line.find(" " + format_bytes(bytes)), std::string::npos) << line;
}

TEST(DeviceReport, HasALineForEachPart) {
  const PlanReport report = report_on_device();
  const std::string text = to_text(report, false);
  expect_line(text, "context and libraries", report.bill.context);
  expect_line(text, "code and local memory", report.bill.code);
  expect_line(text, "recorded steps", report.bill.recordings);
  expect_line(text, "page tables", report.bill.page_tables);
  expect_line(text, "rounding to pages", report.bill.rounding);
  expect_line(text, "inputs of the next step", report.ahead);
  expect_line(text, "process", report.process);
  EXPECT_EQ(text.find("runtime and libraries"), std::string::npos) << text;
  // What the host holds is behind the device's sum.
  const size_t host = text.find("  host ");
  ASSERT_NE(host, std::string::npos) << text;
  EXPECT_GT(text.find("input pipeline"), host) << text;
  expect_line(text, "host", report.host_bill.sum());
  expect_line(text, "pinned optimiser state", 10 * kMiB);
  expect_line(text, "copy of the variables", 40 * kMiB);
  expect_line(text, "input pipeline", 3 * kGiB);
}

TEST(DeviceReport, SaysWhetherItIsDeterministic) {
  PlanReport report = report_on_device();
  EXPECT_NE(to_text(report, false).find("cuda:0, deterministic\n"), std::string::npos);
  report.deterministic = false;
  EXPECT_NE(to_text(report, false).find("cuda:0, not deterministic\n"), std::string::npos);
  EXPECT_EQ(to_json(report).at("deterministic", "plan"), Json(false));
  report.on_device = false;
  EXPECT_NE(to_text(report, false).find("cuda:0 with 1 thread\n"), std::string::npos);
}

TEST(DeviceReport, JsonAddsUp) {
  const PlanReport report = report_on_device();
  const Json json = to_json(report);
  auto sum = [&](const char* name) {
    Bytes all = 0;
    for (const auto& [key, value] : json.at(name, "plan").as_object(name))
      all += value.as_integer(key);
    return all;
  };
  EXPECT_EQ(sum("device_bill") + json.at("ahead_bytes", "plan").as_integer("ahead"),
            json.at("fixed_bytes", "plan").as_integer("fixed"));
  EXPECT_EQ(sum("host"), json.at("host_bytes", "plan").as_integer("host"));
  EXPECT_EQ(json.at("device_bill", "plan").at("code_bytes", "bill"), Json(report.bill.code));
  PlanReport host = report;
  host.on_device = false;
  EXPECT_EQ(to_json(host).find("device_bill"), nullptr);
}

TEST(DeviceReport, CheckpointsSayWhereTheirCopyIs) {
  PlanReport report = report_on_device();
  report.checkpoint_every = 5;
  EXPECT_NE(to_text(report, false).find("between steps: the host's memory has no room"),
            std::string::npos);
  report.snapshot = report.host_bill.snapshot = kMiB;
  const std::string text = to_text(report, false);
  EXPECT_NE(text.find("beside training from a copy of the variables in the host's memory"),
            std::string::npos);
  expect_line(text, "copy for checkpoints", kMiB);
}

}  // namespace
}  // namespace pl::device_report_test

#include "execute/cost_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "execute/calibrate.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/data_files.h"
#include "tests/graph_run.h"

namespace pl::test::cost_table_test {
namespace {

using ::pl::test::TempFolder;

const Rates kRates{.matmul = {{1e6, 1e10}, {1e8, 1e11}},
                   .memory = {{1e5, 4e10}, {1e7, 1e10}},
                   .call_ms = 0.001,
                   .team_ms = 0};

std::string path_in(const TempFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder / "")) return entry.path();
  return "";
}

TEST(CostModel, ComputesFromFlopsOrFromBytesWhicheverTakesLonger) {
  const Op& add = get_op("add");  // a plain loop: a quarter of matmul's rate
  EXPECT_NEAR(roofline_ms(kRates, add, {1e8, 1e5}), 4.001, 1e-9);
  EXPECT_NEAR(roofline_ms(kRates, add, {1e6, 1e7}), 1.001, 1e-9);
  // Between the points: the middle of the logarithms.
  EXPECT_NEAR(roofline_ms(kRates, add, {1e7, 1}), 4e3 * 1e7 / std::sqrt(1e10 * 1e11) + 0.001, 1e-9);
  // Beyond them the rates stay.
  EXPECT_NEAR(roofline_ms(kRates, add, {1e10, 1}), 400.001, 1e-6);
  EXPECT_LT(roofline_ms(kRates, get_op("matmul"), {1e10, 1}), 110);
  EXPECT_EQ(roofline_ms(kRates, get_op("reshape"), {}), 0);  // no kernel runs
}

TEST(CostModel, MoreWorkTakesLongerAndMoreThreadsDoNot) {
  for (const Op* op : catalogue()) {
    if (!op->alias.empty()) continue;
    for (int threads : {1, 2, 16}) {
      double before = 0;
      for (double size = 1e3; size < 1e11; size *= 2) {
        const double ms = nominal_ms(*op, {size, size}, threads);
        EXPECT_GT(ms, before) << op->name << " at " << size;
        if (size > 1e6) {
          EXPECT_LE(ms, nominal_ms(*op, {size, size}, 1) * 1.001);
        }
        before = ms;
      }
    }
  }
}

TEST(CostTable, KeysTellCallsApart) {
  std::set<uint64_t> calls, families;
  for (const char* op : {"add", "multiply"})
    for (Dtype dtype : {Dtype::float32, Dtype::float64})
      for (const Shape& in : {Shape{2, 3}, Shape{8, 3}, Shape{3, 2}})  // the second: more rows
        for (const Shape& out : {Shape{2, 3}, Shape{}})
          for (const Attrs& attrs : {Attrs{}, Attrs{{"axis", int64_t{1}}}})
            for (const char* numerics : {"", "onednn"})
              for (int threads : {1, 2}) {
                Graph graph;
                graph.values = {{.meta = {dtype, in}}, {.meta = {dtype, out}}};
                const Node node{.op = op, .in = {0}, .out = {1}, .attrs = attrs};
                const CallKey key = call_key(graph, node, numerics, threads);
                EXPECT_EQ(call_key(graph, node, numerics, threads).call, key.call);
                calls.insert(key.call);
                families.insert(key.family);
              }
  EXPECT_EQ(calls.size(), 2u * 2 * 3 * 2 * 2 * 2 * 2);
  EXPECT_EQ(families.size(), 2u * 2 * 2 * 2 * 2);
}

// The batch was timed, and something else of the op that is nearer to its parts.
TEST(CostTable, TheFamilyCorrectsBeforeTheNearest) {
  const Op& add = get_op("add");
  CostTable table(1);
  const Cost whole{1e6, 1e7}, part{1e5, 1e6}, near{1.1e5, 1.1e6};
  table.learn({1, 7}, add, near, nominal_ms(add, near, 1));
  table.learn({2, 8}, add, whole, 3 * nominal_ms(add, whole, 1));
  table.learn({3, 9}, add, near, nominal_ms(add, near, 1));
  EXPECT_NEAR(table.ms({4, 8}, add, part) / nominal_ms(add, part, 1), 3, 1e-9);
  EXPECT_NEAR(table.ms({5, 6}, add, part) / nominal_ms(add, part, 1), 1, 1e-9);
  // Of a family the nearest.
  table.learn({6, 8}, add, {2e5, 2e6}, 2 * nominal_ms(add, {2e5, 2e6}, 1));
  EXPECT_NEAR(table.ms({4, 8}, add, part) / nominal_ms(add, part, 1), 2, 1e-9);
}

TEST(CostTable, AnswersTimedThenCorrectedThenNominal) {
  const Op &add = get_op("add"), &matmul = get_op("matmul");
  CostTable table(2);
  const Cost cost{1e6, 1e7}, half{5e5, 5e6};
  EXPECT_EQ(table.ms({1, 0}, add, cost), nominal_ms(add, cost, 2));
  EXPECT_TRUE(table.learn({1, 0}, add, cost, 3 * nominal_ms(add, cost, 2)));
  EXPECT_FLOAT_EQ(static_cast<float>(table.ms({1, 0}, add, cost)),
                  static_cast<float>(3 * nominal_ms(add, cost, 2)));
  // Half the batch is another call of the same op: as wrong as the whole one was.
  EXPECT_NEAR(table.ms({2, 0}, add, half) / nominal_ms(add, half, 2), 3, 1e-4);
  EXPECT_EQ(table.ms({3, 0}, matmul, cost), nominal_ms(matmul, cost, 2));
  // The nearest timed call corrects.
  EXPECT_TRUE(table.learn({4, 0}, add, {1e3, 1e4}, nominal_ms(add, {1e3, 1e4}, 2)));
  EXPECT_NEAR(table.ms({5, 0}, add, {2e3, 2e4}) / nominal_ms(add, {2e3, 2e4}, 2), 1, 1e-4);
  EXPECT_NEAR(table.ms({2, 0}, add, half) / nominal_ms(add, half, 2), 3, 1e-4);
}

TEST(CostTable, LearnsNewsOnly) {
  const Op& add = get_op("add");
  CostTable table(1);
  const std::string empty = table.hash();
  EXPECT_TRUE(table.learn({1, 0}, add, {1, 1}, 2.0));
  const std::string one = table.hash();
  EXPECT_NE(one, empty);
  EXPECT_FALSE(table.learn({1, 0}, add, {1, 1}, 2.15));
  EXPECT_FALSE(table.learn({1, 0}, add, {1, 1}, 1.85));
  EXPECT_EQ(table.hash(), one);
  EXPECT_TRUE(table.learn({1, 0}, add, {1, 1}, 2.3));
  EXPECT_NE(table.hash(), one);
  for (double bad : {0.0, 1e-12, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(table.learn({2, 0}, add, {1, 1}, bad)) << bad;
  EXPECT_EQ(table.size(), 1u);
  for (uint64_t key = 10; key < 5000; ++key) table.learn({key, 0}, add, {1, 1}, 1.0);
  EXPECT_LE(static_cast<Bytes>(table.size() * 48), CostTable::bytes());
  EXPECT_EQ(table.ms({1, 0}, add, {1, 1}), table.ms({10, 0}, add, {1, 1}));  // the oldest are gone
}

TEST(CostTable, ComesBackFromItsFile) {
  const TempFolder folder;
  const CpuBackend backend(2);
  CostTable table = CostTable::load(folder / "deep/cache", backend);
  EXPECT_FALSE(table.calibrated());
  table.calibrate(kRates);
  table.learn({77, 0}, get_op("matmul"), {1e9, 1e6}, 12.345678);
  table.save();
  const CostTable again = CostTable::load(folder / "deep/cache", backend);
  EXPECT_TRUE(again.calibrated());
  EXPECT_EQ(again.hash(), table.hash());
  EXPECT_EQ(again.ms({77, 0}, get_op("matmul"), {}), table.ms({77, 0}, get_op("matmul"), {}));
  EXPECT_EQ(again.ms({78, 0}, get_op("add"), {1, 1e7}),
            roofline_ms(kRates, get_op("add"), {1, 1e7}));
  // Another number of threads is another machine.
  EXPECT_FALSE(CostTable::load(folder / "deep/cache", CpuBackend(1)).calibrated());
}

TEST(CostTable, AFullFileIsReadAgain) {
  const TempFolder folder;
  const CpuBackend backend(1);
  CostTable table = CostTable::load(folder / "", backend);
  for (uint64_t key = 1; key < 5000; ++key)
    table.learn({key * 0x9e3779b97f4a7c15, ~key}, get_op("softmax_cross_entropy"),
                {1.2345678e12, 1.2345678e11}, 1234.5678);
  table.save();
  const CostTable again = CostTable::load(folder / "", backend);
  EXPECT_EQ(again.size(), table.size());
  EXPECT_EQ(again.hash(), table.hash());
}

TEST(CostTable, BadFilesAreNoTable) {
  const TempFolder folder;
  const CpuBackend backend(1);
  CostTable table = CostTable::load(folder / "", backend);
  table.calibrate(kRates);
  table.learn({77, 0}, get_op("matmul"), {1e9, 1e6}, 12.5);
  table.save();
  const std::string path = path_in(folder);
  const std::string good = ::pl::test::read_bytes(path);
  const std::string nominal = CostTable::load("", backend).hash();
  auto loaded = [&](const std::string& text) {
    write_file_atomically(path, text);
    return CostTable::load(folder / "", backend);
  };
  EXPECT_TRUE(loaded(good).calibrated());
  for (size_t cut = 0; cut + 1 < good.size(); ++cut) {
    const CostTable part = loaded(good.substr(0, cut));
    EXPECT_LE(part.size(), 0u) << cut;
    EXPECT_GT(part.ms({1, 0}, get_op("add"), {1, 1e7}), 0);
  }
  auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::string huge(1 << 20, 'x');
  std::string endless = good;
  for (int i = 0; i < 4000; ++i) endless += "time 1 1 add 1 1 0 1\n";
  for (const std::string& bad : {replaced(" 12500000000", " nan"),
                                 replaced(" 12500000000", " -1"),
                                 replaced(" 12500000000", " 0"),
                                 replaced(" 12500000000", " inf"),
                                 replaced(" 12500000000", " 12.5"),
                                 replaced(" 12500000000", " 99999999999999999999"),
                                 replaced(" 12500000000", " 1000000000000000001"),
                                 replaced(" 12500000000", " 12 1"),
                                 replaced(" 12500000000", ""),
                                 replaced(" 12500000000", " 0x10"),
                                 replaced("costs 3", "costs 2"),
                                 replaced("threads", "more"),
                                 replaced(" 10000000000", " 0"),
                                 replaced(" 10000000000", " -5"),
                                 replaced("matmul 1000000 ", "matmul 100000000 "),
                                 replaced("time", "tame"),
                                 replaced("000000000000004d", "xyz"),
                                 huge,
                                 endless,
                                 std::string(5000, '\n'),
                                 std::string("\0\0\0\n", 4)}) {
    const CostTable none = loaded(bad);
    EXPECT_FALSE(none.calibrated()) << bad.substr(0, 300);
    EXPECT_EQ(none.size(), 0u);
    EXPECT_NEAR(none.ms({77, 0}, get_op("matmul"), {1e9, 1e6}),
                nominal_ms(get_op("matmul"), {1e9, 1e6}, 1), 1e-12);
  }
  EXPECT_EQ(CostTable::load("", backend).hash(), nominal);
  // A file that is not one, and a folder that cannot be.
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(CostTable::load(folder / "", backend).calibrated());
  EXPECT_THROW(table.save(), Error);
  EXPECT_THROW(CostTable::load("/dev/null/none", backend).save(), Error);
  CostTable::load("", backend).save();  // nowhere to go: nothing happens
}

TEST(CostTable, WritersDoNotDisturbEachOther) {
  const TempFolder folder;
  const CpuBackend backend(1);
  std::vector<std::thread> writers;
  for (uint64_t w = 1; w <= 3; ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) {
        CostTable table = CostTable::load(folder / "", backend);
        table.learn({w, 0}, get_op("add"), {1, 1}, 1.0 + i);
        table.save();
      }
    });
  for (std::thread& writer : writers) writer.join();
  const CostTable table = CostTable::load(folder / "", backend);
  EXPECT_GE(table.size(), 1u);
  EXPECT_LE(table.size(), 3u);
}

TEST(CostTable, LearnsTheStepsOfAPlan) {
  CpuBackend backend(1);
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{4}}, true);
  const Tensor y = r.input("y", {Dtype::float32, Shape{8}}, true);
  r.keep(tanh(x), "a");
  r.keep(tanh(tanh(y)), "b");
  PassOptions apart;
  apart.off = {"fuse-pointwise"};
  const PlannedRun run(r.take(), backend, apart);
  CostTable table(1);
  const double times[] = {1, 2, 4};  // the last two are equal calls: 3 in the mean
  const auto learn = [&] {
    return learn_steps(table, run.graph(), run.plan(), run.prepared().facts, times, 1);
  };
  EXPECT_TRUE(learn());
  EXPECT_FALSE(learn());
  EXPECT_EQ(table.size(), 2u);
  for (size_t s = 0; s < 3; ++s) {
    const NodeId id = run.plan().steps[s].node;
    const CallKey key = call_key(run.graph(), run.graph().nodes[index(id)],
                                 run.prepared().facts.nodes[index(id)].key, 1);
    EXPECT_EQ(table.ms(key, get_op("tanh"), {}), s == 0 ? 1 : 3);
  }
}

TEST(Calibrate, MeasuresWithinItsTimeAndRoom) {
  CpuBackend backend(2);
  for (Bytes room : {Bytes{0}, 8 * kMiB}) {
    const Rates rates = calibrate(backend, room);
    ASSERT_GE(rates.matmul.size(), 1u);
    ASSERT_GE(rates.memory.size(), 1u);
    for (const auto* points : {&rates.matmul, &rates.memory})
      for (size_t i = 0; i < points->size(); ++i) {
        EXPECT_GT((*points)[i].per_second, 1e6);
        if (i > 0) {
          EXPECT_GT((*points)[i].size, (*points)[i - 1].size);
        }
      }
    EXPECT_LE(rates.matmul.front().per_second, rates.matmul.back().per_second);
    EXPECT_GE(rates.memory.front().per_second, rates.memory.back().per_second);
    EXPECT_LE(rates.memory.back().size, static_cast<double>(std::max(room, kMiB)));
    EXPECT_GT(rates.call_ms, 0);
    EXPECT_GE(rates.team_ms, 0);
    EXPECT_FALSE(plausible({}));
  }
}

}  // namespace
}  // namespace pl::test::cost_table_test

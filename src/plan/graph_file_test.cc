// Graph files: what is read, what is refused, and the schedule that comes back.
#include "plan/graph_file.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "tests/graph_run.h"

namespace pl::test::graph_file_test {
namespace {

constexpr const char* kChain =
    R"({"values":[{"bytes":100,"persistent":true},{"bytes":10},{"bytes":50},
  {"bytes":7},{"bytes":20},{"bytes":5}],
 "nodes":[{"name":"a","ms":1,"reads":[0,1],"writes":[2]},
          {"ms":2.5,"reads":[2],"writes":[3],"workspace_bytes":30},
          {"ms":1,"reads":[3],"writes":[4]},
          {"ms":1,"reads":[2,4],"writes":[5]},
          {"ms":0,"reads":[5,0],"writes":[0],"recompute":false}],
 "keep":[5]})";

TEST(GraphFile, BecomesAProblem) {
  const GraphFile file = read_graph(kChain, "chain");
  EXPECT_EQ(file.persistent, 100);
  ASSERT_EQ(file.problem.values.size(), 7u) << "the second version of value 0";
  EXPECT_EQ(file.number[6], 0);
  EXPECT_EQ(file.problem.values[0].replaced_by, 4);
  EXPECT_EQ(file.problem.values[0].bytes, 0);
  EXPECT_EQ(file.problem.values[1].producer, -1) << "an input";
  EXPECT_TRUE(file.problem.values[5].keep);
  EXPECT_FALSE(file.problem.nodes[4].rerun);
  EXPECT_EQ(file.names[0], "a");
}

TEST(GraphFile, IsPlannedWithinABudget) {
  const GraphFile file = read_graph(kChain, "chain");
  const GraphAnswer all = plan_graph(file, "chain", std::nullopt, true);
  auto number = [](const Json& json, const char* key) { return json.at(key, key).as_integer(key); };
  EXPECT_TRUE(all.fits);
  EXPECT_EQ(number(all.json, "arena_bytes"), 100 + 50 + 7 + 30);
  EXPECT_EQ(all.json.at("schedule", "").as_array("").size(), 5u);
  EXPECT_GE(all.json.at("frontier", "").as_array("").size(), 1u);
  const Bytes least = number(all.json, "minimum_bytes");
  EXPECT_GE(least, number(all.json, "bound_bytes"));
  const GraphAnswer none = plan_graph(file, "chain", least - 1, false);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.json.at("remedies", "").as_array("")[0].at("change", "").as_string(""),
            "--memory " + std::to_string(least));
}

// Every pool entry's schedule, replayed from the JSON alone.
void replay(const Json& graph, const Json& answer) {
  const auto& nodes = graph.at("nodes", "").as_array("");
  const auto& values = graph.at("values", "").as_array("");
  struct Copy {
    int64_t at, end;
  };
  std::map<int64_t, Copy> where;  // values whose bytes are intact
  auto size = [&](int64_t v) {
    return values[static_cast<size_t>(v)].at("bytes", "").as_integer("");
  };
  auto put = [&](int64_t v, int64_t at) {
    for (auto it = where.begin(); it != where.end();)
      it = it->second.at < at + size(v) && at < it->second.end && it->first != v ? where.erase(it)
                                                                                 : std::next(it);
    where[v] = {at, at + size(v)};
    ASSERT_LE(at + size(v), answer.at("arena_bytes", "").as_integer(""));
  };
  for (const Json& pair : answer.at("before", "").as_array(""))
    put(pair.as_array("")[0].as_integer(""), pair.as_array("")[1].as_integer(""));
  for (const Json& step : answer.at("schedule", "").as_array("")) {
    const Json& node = nodes[static_cast<size_t>(step.at("node", "").as_integer(""))];
    for (const Json& v : node.at("reads", "").as_array(""))
      ASSERT_TRUE(where.contains(v.as_integer("")) || size(v.as_integer("")) == 0);
    for (const Json& pair : step.at("at", "").as_array(""))
      put(pair.as_array("")[0].as_integer(""), pair.as_array("")[1].as_integer(""));
  }
  for (const Json& v : graph.at("keep", "").as_array(""))
    ASSERT_TRUE(where.contains(v.as_integer("")) || size(v.as_integer("")) == 0);
}

TEST(GraphFile, SchedulesOfRandomGraphsCanBeReplayed) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    Numbers numbers(seed);
    Json values = Json::array(), nodes = Json::array();
    const int inputs = 1 + numbers.below(3), count = 3 + numbers.below(12);
    for (int v = 0; v < inputs + count; ++v)
      values.push(Json::object()
                      .set("bytes", numbers.below(50))
                      .set("persistent", v < inputs && numbers.chance(0.5)));
    for (int n = 0; n < count; ++n) {
      std::set<int> reads;
      for (int r = 0; r < 2; ++r) reads.insert(numbers.below(inputs + n));
      Json ids = Json::array();
      for (int id : reads) ids.push(id);
      nodes.push(Json::object()
                     .set("ms", numbers.real())
                     .set("reads", ids)
                     .set("writes", Json::array().push(inputs + n))
                     .set("recompute", !numbers.chance(0.1)));
    }
    Json graph = Json::object();
    graph.set("values", values)
        .set("nodes", nodes)
        .set("keep", Json::array().push(inputs + count - 1));
    const GraphFile file = read_graph(graph.dump(), "random");
    const GraphAnswer all = plan_graph(file, "random", std::nullopt, true);
    for (const Json& point : all.json.at("frontier", "").as_array("")) {
      const Bytes budget = point.at("process_bytes", "").as_integer("");
      const GraphAnswer answer = plan_graph(file, "random", budget, false);
      ASSERT_TRUE(answer.fits);
      ASSERT_EQ(answer.json.at("process_bytes", "").as_integer(""), budget);
      replay(graph, answer.json);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
  }
}

TEST(GraphFile, RefusesWhatIsNotAGraph) {
  const std::map<std::string, std::string> bad{
      {R"({"nodes":[]})", "values"},
      {R"({"values":[],"nodes":[],"what":1})", "unknown key"},
      {R"({"values":[{"bytes":-1}],"nodes":[]})", "bytes from 0"},
      {R"({"values":[{"bytes":9223372036854775807}],"nodes":[]})", "2^60"},
      {R"({"values":[{"bytes":99999999999999999999}],"nodes":[]})", "64 bits"},
      {R"({"values":[{"bytes":1.5}],"nodes":[]})", "integer"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":-1,"reads":[],"writes":[0]}]})", "time"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1e400,"writes":[0]}]})", ""},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1e13,"writes":[0]}]})", "time"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"writes":[1]}]})", "value from 0 to 0"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"writes":[-1]}]})", "value from 0"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"reads":[0,0]}]})", "twice"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"writes":[0]},{"ms":1,"writes":[0]}]})",
       "earlier node"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"reads":[0]},{"ms":1,"writes":[0]}]})",
       "before it is written"},
      {R"({"values":[{"bytes":1}],"nodes":[{"ms":1,"reads":[0],"writes":[0]}]})",
       "before it is written"},
      {R"({"values":[{"bytes":1}],"nodes":[],"keep":[0,0]})", "twice"},
      {R"({"values":[{"bytes":1}],"nodes":[],"keep":[3]})", "value from 0"},
      {R"({"values":[{"bytes":1,"persistent":1}],"nodes":[]})", ""},
      {R"({"values":3,"nodes":[]})", ""},
      {R"([])", ""},
      {"", ""},
      {"[[[[[[[[[[[[[[[[", ""},
  };
  for (const auto& [text, says] : bad) {
    try {
      read_graph(text, "bad");
      ADD_FAILURE() << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos)
          << text << " gave " << error.what();
    }
  }
}

}  // namespace
}  // namespace pl::test::graph_file_test

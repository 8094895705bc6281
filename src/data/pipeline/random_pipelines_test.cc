// Pipelines put together at random yield what tf.data's yield, element by element
// (tests/golden/pipelines.py); in every epoch, and from every place on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::random_pipelines_test {
namespace {

constexpr int64_t kMost = 60;  // elements that are stored

int64_t floor_mod(int64_t x, int64_t m) { return ((x % m) + m) % m; }

int64_t sum_of(const Tensor& tensor) {
  int64_t sum = 0;
  for (int64_t i = 0; i < tensor.shape().elements(); ++i) sum += tensor.data_as<int64_t>()[i];
  return sum;
}

Element scaled(const Element& in, int64_t factor, int64_t more) {
  Element out;
  for (const Tensor& tensor : in) {
    Tensor& made = out.emplace_back(Meta{Dtype::int64, tensor.shape()});
    for (int64_t i = 0; i < tensor.shape().elements(); ++i)
      made.data_as<int64_t>()[i] = tensor.data_as<int64_t>()[i] * factor + more;
  }
  return out;
}

// x, x + 1, ... as many as the rest of its division by m.
Element row_of(const Element& in, int64_t m) {
  const int64_t x = number(in), length = floor_mod(x, m);
  Tensor row(Meta{Dtype::int64, Shape{length}});
  for (int64_t i = 0; i < length; ++i) row.data_as<int64_t>()[i] = x + i;
  return {row};
}

Dataset inner_of(const Element& in, int64_t m) {
  const int64_t x = number(in);
  return Dataset::range(floor_mod(x, m)).map([x](const Element& i) {
    return Element(1, scalar64(number(i) + 100 * x));
  });
}

Dataset build(const Json& stages);

class Builder {
 public:
  explicit Builder(const Json& stage) : stage_(stage.as_array("stage")) {}
  Dataset operator()(const Dataset& data) const {
    static const std::map<std::string, Dataset (Builder::*)(const Dataset&) const> words{
        {"scale", &Builder::map},       {"map_parallel", &Builder::map},
        {"ragged", &Builder::map},      {"sum", &Builder::map},
        {"filter", &Builder::flow},     {"flat_map", &Builder::flow},
        {"interleave", &Builder::flow}, {"ignore_errors", &Builder::flow},
        {"batch", &Builder::group},     {"padded_batch", &Builder::group},
        {"unbatch", &Builder::group},   {"rebatch", &Builder::group},
        {"window", &Builder::group},    {"bucket", &Builder::group},
    };
    const auto at = words.find(word());
    return at == words.end() ? others(data) : (this->*at->second)(data);
  }

 private:
  const std::string& word() const { return stage_[0].as_string("word"); }
  int64_t n(size_t i) const { return stage_[i].as_integer("number"); }
  bool flag(size_t i) const { return stage_[i].as_bool("flag"); }

  Dataset map(const Dataset& data) const {
    const int64_t a = word() == "sum" ? 0 : n(1);
    if (word() == "ragged")
      return data.map(
          [a](const Element& in) { return row_of(in, a); },
          {.spec = ElementSpec{{{"x", Dtype::int64, Shape{kUnknown}}}}, .max_bytes = 4096});
    if (word() == "sum")
      return data.map([](const Element& in) { return Element(1, scalar64(sum_of(in[0]))); },
                      {.spec = int64_spec()});
    const bool parallel = word() == "map_parallel";
    const int64_t factor = parallel ? 1 : a, more = parallel ? a : n(2);
    return data.map([=](const Element& in) { return scaled(in, factor, more); },
                    {.num_parallel_calls = parallel ? n(2) : 1, .spec = data.element_spec()});
  }
  Dataset flow(const Dataset& data) const {
    const int64_t m = n(1);
    if (word() == "filter")
      return data.filter([m](const Element& in) { return floor_mod(sum_of(in[0]), m) != 0; });
    if (word() == "ignore_errors")
      return data
          .map(
              [m](const Element& in) {
                if (floor_mod(number(in), m) == 0) throw DataError("as asked");
                return in;
              },
              {.spec = data.element_spec()})
          .ignore_errors();
    InterleaveOptions options{.spec = int64_spec()};
    const auto expand = [m](const Element& in) { return inner_of(in, m); };
    if (word() == "flat_map") return data.flat_map(expand, options);
    options.cycle_length = n(2);
    options.block_length = n(3);
    return data.interleave(expand, options);
  }
  Dataset group(const Dataset& data) const {
    const std::vector<double> minus(data.element_spec().fields.size(), -1);
    if (word() == "batch") return data.batch(n(1), flag(2));
    if (word() == "padded_batch")
      return data.padded_batch(n(1), {.padding_values = minus, .drop_remainder = flag(2)});
    if (word() == "unbatch") return data.unbatch();
    if (word() == "rebatch") return data.rebatch(n(1), flag(2));
    if (word() == "window") return data.window(n(1), {.shift = n(2), .stride = n(3)});
    return data.bucket_by_sequence_length([](const Element& in) { return in[0].shape()[0]; },
                                          {2, 4}, {n(1), n(2), 2},
                                          {.padding_values = minus, .drop_remainder = flag(3)});
  }
  Dataset others(const Dataset& data) const {
    if (word() == "take") return data.take(n(1));
    if (word() == "skip") return data.skip(n(1));
    if (word() == "shard") return data.shard(n(1), n(2));
    if (word() == "repeat") return data.repeat(n(1));
    if (word() == "concatenate") return data.concatenate(build(stage_[1]));
    if (word() == "zip") return Dataset::zip({data, build(stage_[1])});
    if (word() == "enumerate") return data.enumerate(n(1));
    if (word() == "cache") return data.cache();
    if (word() == "prefetch") return data.prefetch(n(1));
    throw std::logic_error("no stage " + word());
  }
  const Json::Array& stage_;
};

Dataset build(const Json& stages) {
  const Json::Array& list = stages.as_array("stages");
  const Json::Array& range = list[0].as_array("range");
  Dataset data = Dataset::range(range[1].as_integer("begin"), range[2].as_integer("end"),
                                range[3].as_integer("step"));
  for (size_t i = 1; i < list.size(); ++i) data = Builder(list[i])(data);
  return data;
}

Json as_json(const Element& element) {
  Json list = Json::array();
  for (const Tensor& tensor : element) {
    Json shape = Json::array(), values = Json::array();
    for (const Dim dim : tensor.shape()) shape.push(dim);
    for (int64_t i = 0; i < tensor.shape().elements(); ++i)
      values.push(tensor.data_as<int64_t>()[i]);
    list.push(Json::array().push(std::move(shape)).push(std::move(values)));
  }
  return list;
}

Json rest_of(DatasetIterator& iterator, int64_t most) {
  Json list = Json::array();
  for (Element element; most-- > 0 && iterator.next(element);) list.push(as_json(element));
  return list;
}

void check_case(const Json& wanted) {
  const Dataset data = build(wanted.at("stages", "case")).with_options({.threads = 2});
  const Json& elements = wanted.at("elements", "case");
  const Json::Array& all = elements.as_array("elements");
  const auto count = static_cast<int64_t>(all.size());
  DatasetIterator iterator = data.iterate();
  ASSERT_EQ(rest_of(iterator, kMost), elements);
  iterator.start(1);
  ASSERT_EQ(rest_of(iterator, kMost), elements);
  // What is known before anything runs.
  const int64_t known = wanted.at("cardinality", "case").as_integer("cardinality");
  if (known != kUnknownCardinality) {
    EXPECT_EQ(data.cardinality(), known);
  } else if (data.cardinality() >= 0) {
    EXPECT_EQ(std::min(data.cardinality(), kMost), count);
  }
  for (const int64_t place : {int64_t{1}, count / 3, count / 2, count - 1, count}) {
    if (place < 0 || place > count) continue;
    DatasetIterator first = data.iterate(), second = data.iterate();
    ASSERT_EQ(first.advance(place), place);
    second.restore(first.save());
    const Json rest(Json::Array(all.begin() + place, all.end()));
    ASSERT_EQ(rest_of(second, kMost - place), rest) << "from " << place;
  }
}

TEST(RandomPipelines, YieldWhatTensorFlowYields) {
  const char* other = std::getenv("PLIMSOLL_PIPELINES");  // more of them, made for the occasion
  const std::string path = other ? other : ::pl::test::golden("pipelines.json");
  const Json cases = parse_json(test::read_bytes(path), "cases");
  ASSERT_GT(cases.as_array("cases").size(), 0u);
  for (const Json& wanted : cases.as_array("cases")) {
    SCOPED_TRACE(wanted.at("stages", "case").dump());
    try {
      check_case(wanted);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace pl::random_pipelines_test

// The words of tf.data, on numbers: what comes out, in which order, and what is refused.
#include "data/pipeline/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "data/pipeline/testing.h"
#include "tests/messages.h"

namespace pl::dataset_test {
namespace {

using List = std::vector<int64_t>;

TEST(Dataset, RangesAsPythonHasThem) {
  EXPECT_EQ(numbers(Dataset::range(4)), (List{0, 1, 2, 3}));
  EXPECT_EQ(numbers(Dataset::range(3, 12, 4)), (List{3, 7, 11}));
  EXPECT_EQ(numbers(Dataset::range(5, 0, -2)), (List{5, 3, 1}));
  EXPECT_EQ(Dataset::range(5, 5).cardinality(), 0);
  EXPECT_EQ(Dataset::range(INT64_MIN, INT64_MAX, INT64_MAX).cardinality(), 3);
}

TEST(Dataset, SlicesAndBatches) {
  Tensor x(Meta{Dtype::float32, Shape{5, 3}}), y(Meta{Dtype::int64, Shape{5}});
  for (int i = 0; i < 15; ++i) x.data_as<float>()[i] = static_cast<float>(i);
  for (int i = 0; i < 5; ++i) y.data_as<int64_t>()[i] = i;
  const Dataset data = Dataset::from_tensor_slices({x, y}).batch(2);
  EXPECT_EQ(data.cardinality(), 3);
  EXPECT_EQ(data.element_spec().text(), "x: float32 (?, 3), y: int64 (?,)");
  std::vector<Shape> shapes;
  int64_t row = 0;
  for (const Element& batch : data) {
    shapes.push_back(batch[0].shape());
    for (int64_t r = 0; r < batch[0].shape()[0]; ++r, ++row) {
      EXPECT_EQ(batch[0].data_as<float>()[r * 3 + 2], static_cast<float>(row * 3 + 2));
      EXPECT_EQ(batch[1].data_as<int64_t>()[r], row);
    }
  }
  EXPECT_EQ(row, 5);
  EXPECT_EQ(shapes, (std::vector<Shape>{{2, 3}, {2, 3}, {1, 3}}));
  EXPECT_EQ(Dataset::from_tensor_slices({x}).batch(2, true).element_spec().text(),
            "x: float32 (2, 3)");
}

// Rows that go straight into a batch are those that would have come one by one.
TEST(Dataset, BatchesOfSlicesAreThoseOfTheirElements) {
  Tensor x(Meta{Dtype::int64, Shape{23, 2}}), y(Meta{Dtype::uint8, Shape{23}});
  for (int i = 0; i < 46; ++i) x.data_as<int64_t>()[i] = i;
  for (int i = 0; i < 23; ++i) y.data_as<uint8_t>()[i] = static_cast<uint8_t>(i);
  for (const bool drop : {false, true}) {
    const Dataset rows = Dataset::from_tensor_slices({x, y}).shuffle({.seed = 4});
    const Dataset direct = rows.batch(5, drop),
                  single = rows.map([](const Element&e) { return e; }).batch(5, drop);
    EXPECT_TRUE(direct.stage()->inputs()[0]->puts());
    EXPECT_FALSE(single.stage()->inputs()[0]->puts());
    for (const uint64_t epoch : {0, 1}) EXPECT_EQ(numbers(direct, epoch), numbers(single, epoch));
    EXPECT_EQ(numbers(direct.skip(3)), numbers(single.skip(3)));
    DatasetIterator iterator = direct.iterate();
    const Element batch = *iterator.next();
    for (int64_t r = 0; r < 5; ++r)
      EXPECT_EQ(batch[0].data_as<int64_t>()[2 * r], 2 * batch[1].data_as<uint8_t>()[r]);
    EXPECT_EQ(iterator.report().stages[1].elements, 5);
  }
}

TEST(Dataset, StagesOfNumberAndOrder) {
  for (const Dataset& five : {Dataset::range(5), stream(5)}) {
    EXPECT_EQ(numbers(five.take(3)), iota(3));
    EXPECT_EQ(numbers(five.take(-1)), iota(5));
    EXPECT_EQ(numbers(five.skip(3)), (List{3, 4}));
    EXPECT_EQ(numbers(five.skip(9)), List());
    EXPECT_EQ(numbers(five.shard(2, 1)), (List{1, 3}));
    EXPECT_EQ(numbers(five.shard(3, 1)), (List{1, 4}));
    EXPECT_EQ(numbers(five.repeat(2)), (List{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
    EXPECT_EQ(numbers(five.repeat().take(7)), (List{0, 1, 2, 3, 4, 0, 1}));
    EXPECT_EQ(numbers(five.repeat(2).skip(6).take(2)), (List{1, 2}));
    EXPECT_EQ(numbers(five.concatenate(Dataset::range(2))), (List{0, 1, 2, 3, 4, 0, 1}));
    EXPECT_EQ(numbers(five.concatenate(Dataset::range(2)).skip(6)), (List{1}));
    EXPECT_EQ(numbers(five.enumerate(10).skip(1)), (List{11, 12, 13, 14}));
    EXPECT_EQ(numbers(five.filter([](const Element& e) { return number(e) % 2 == 0; })),
              (List{0, 2, 4}));
    EXPECT_EQ(numbers(five.map([](const Element& e) { return times(e, 3); }).skip(2)),
              (List{6, 9, 12}));
    EXPECT_EQ(numbers(five.batch(2).unbatch()), iota(5));
    EXPECT_EQ(numbers(five.batch(2).unbatch().skip(3)), (List{3, 4}));
    EXPECT_EQ(numbers(five.window(3, {.shift = 1})), (List{0, 1, 2, 1, 2, 3, 2, 3, 4}));
    EXPECT_EQ(numbers(five.window(2, {.shift = 3, .stride = 1})), (List{0, 1, 3, 4}));
    EXPECT_EQ(numbers(five.window(2, {.shift = 1, .stride = 3})), (List{0, 3, 1, 4}));
    EXPECT_EQ(numbers(five.prefetch(2)), iota(5));
    EXPECT_EQ(numbers(five.cache()), iota(5));
  }
  EXPECT_EQ(numbers(Dataset::range(0).repeat()), List());
  EXPECT_EQ(numbers(stream(0).repeat()), List());
  const Dataset zipped = Dataset::zip({Dataset::range(3), stream(5)});
  EXPECT_EQ(numbers(zipped), iota(3));
  EXPECT_EQ(zipped.cardinality(), kUnknownCardinality);
  EXPECT_EQ(Dataset::zip({Dataset::range(3), Dataset::range(9)}).cardinality(), 3);
}

TEST(Dataset, CardinalitiesFollowTheStages) {
  const Dataset ten = Dataset::range(10);
  EXPECT_EQ(ten.batch(3).cardinality(), 4);
  EXPECT_EQ(ten.batch(3, true).cardinality(), 3);
  EXPECT_EQ(ten.repeat().cardinality(), kInfiniteCardinality);
  EXPECT_EQ(ten.repeat().batch(4).take(7).cardinality(), 7);
  EXPECT_EQ(ten.repeat(3).skip(5).shard(2, 0).cardinality(), 13);
  EXPECT_EQ(ten.filter([](const Element&) { return true; }).cardinality(), kUnknownCardinality);
  EXPECT_EQ(ten.filter([](const Element&) { return true; }).assert_cardinality(10).cardinality(),
            10);
  EXPECT_EQ(ten.window(4, {.shift = 2}).cardinality(), 4);
}

TEST(Dataset, AssertCardinalityHoldsOrThrows) {
  EXPECT_EQ(numbers(stream(3).assert_cardinality(3)), iota(3));
  EXPECT_NE(test::message_of([] { numbers(stream(3).assert_cardinality(4)); }).find("expected 4"),
            std::string::npos);
  EXPECT_NE(
      test::message_of([] { numbers(stream(3).assert_cardinality(2)); }).find("received more"),
      std::string::npos);
}

TEST(Dataset, CoroutinesGenerate) {
  const auto squares = []() -> Generator<Element> {
    for (int64_t i = 0; i < 4; ++i) co_yield Element(1, scalar64(i * i));
  };
  const Dataset data = Dataset::from_generator(squares, int64_spec());
  EXPECT_EQ(numbers(data), (List{0, 1, 4, 9}));
  EXPECT_EQ(numbers(data.repeat(2).skip(3)), (List{9, 0, 1, 4, 9}));
}

TEST(Dataset, AGeneratorThatThrowsIsNamed) {
  const Dataset data = Dataset::from_generator(
      [] {
        return [i = 0]() mutable -> std::optional<Element> {
          if (i == 2) throw std::runtime_error("the sensor is gone");
          return Element{scalar64(i++)};
        };
      },
      int64_spec());
  DatasetIterator iterator = data.iterate();
  Element element;
  EXPECT_TRUE(iterator.next(element));
  EXPECT_TRUE(iterator.next(element));
  EXPECT_EQ(test::message_of([&] { iterator.next(element); }),
            "[data] generator: element 2: the sensor is gone");
  EXPECT_FALSE(iterator.next(element));
}

TEST(Dataset, AnElementThatIsNotAsItsSignatureSaysIsRefused) {
  const Dataset data = Dataset::from_generator(
      [] {
        return []() -> std::optional<Element> {
          return Element{Tensor(Meta{Dtype::float32, Shape{2}})};
        };
      },
      int64_spec());
  const std::string message = test::message_of([&] { numbers(data); });
  EXPECT_NE(message.find("expected an element of x: int64 ()"), std::string::npos) << message;
  EXPECT_NE(message.find("received float32 (2,)"), std::string::npos) << message;
}

TEST(Dataset, PadsToTheLongestOrToAShape) {
  const Dataset data =
      Dataset::from_reader(3,
                           [](int64_t i) {
                             Tensor row(Meta{Dtype::int64, Shape{i + 1, 2}});
                             for (int64_t k = 0; k < (i + 1) * 2; ++k)
                               row.data_as<int64_t>()[k] = 10 * i + k;
                             return Element{row};
                           },
                           {{{"x", Dtype::int64, Shape{kUnknown, 2}}}}, {.max_bytes = 4096});
  EXPECT_EQ(numbers(data.padded_batch(2, {.padding_values = {-1}})),
            (List{0, 1, -1, -1, 10, 11, 12, 13, 20, 21, 22, 23, 24, 25}));
  EXPECT_EQ(numbers(data.padded_batch(1, {.padded_shapes = {Shape{3, 3}}}).take(1)),
            (List{0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_NE(test::message_of([&] {
              numbers(data.padded_batch(3, {.padded_shapes = {Shape{2, 2}}}));
            }).find("expected at most 2 along axis 0, received 3"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { numbers(data.batch(2)); }).find("padded_batch"),
            std::string::npos);
}

TEST(Dataset, InterleavesInTurns) {
  const auto inner = [](const Element& e) {
    return Dataset::range(10 * number(e), 10 * number(e) + 3);
  };
  const Dataset three = Dataset::range(1, 4);
  EXPECT_EQ(numbers(three.flat_map(inner, {.spec = int64_spec()})),
            (List{10, 11, 12, 20, 21, 22, 30, 31, 32}));
  EXPECT_EQ(numbers(three.interleave(inner, {.spec = int64_spec(), .cycle_length = 2})),
            (List{10, 20, 11, 21, 12, 22, 30, 31, 32}));
  EXPECT_EQ(numbers(three.interleave(inner,
                                     {.spec = int64_spec(), .cycle_length = 3, .block_length = 2})),
            (List{10, 11, 20, 21, 30, 31, 12, 22, 32}));
}

TEST(Dataset, SamplesByWeight) {
  const Dataset mixed = Dataset::sample_from_datasets(
      {Dataset::range(1).repeat(), Dataset::range(1, 2).repeat()}, {.weights = {0.8, 0.2}});
  const List list = numbers(mixed.take(2000));
  const auto ones = std::count(list.begin(), list.end(), 1);
  EXPECT_GT(ones, 330);
  EXPECT_LT(ones, 470);
  List all = numbers(Dataset::sample_from_datasets({Dataset::range(5), Dataset::range(5, 9)}));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, iota(9));
}

TEST(Dataset, ErrorsAreSkippedCountedAndNamed) {
  for (const int64_t parallel : {1, 4}) {
    const Dataset data = Dataset::range(20)
                             .map(
                                 [](const Element& e) {
                                   if (number(e) % 7 == 3)
                                     throw DataError("file " + std::to_string(number(e)));
                                   return e;
                                 },
                                 {.num_parallel_calls = parallel})
                             .ignore_errors();
    DatasetIterator iterator = data.iterate();
    const List list = numbers(iterator);
    EXPECT_EQ(list.size(), 17u);
    EXPECT_EQ(std::count(list.begin(), list.end(), 3), 0);
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
    const StageReport line = iterator.report().stages.back();
    EXPECT_EQ(line.skipped, 3);
    ASSERT_EQ(line.messages.size(), 3u);
    EXPECT_EQ(line.messages[1], "[data] map: element 10: file 10");
  }
}

TEST(Dataset, WithoutIgnoreErrorsTheFirstStops) {
  const Dataset data = Dataset::range(20).map(
      [](const Element& e) {
        if (number(e) == 5) throw DataError("photos/5.jpg is no image");
        return e;
      },
      {.num_parallel_calls = 4});
  DatasetIterator iterator = data.iterate();
  Element element;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(iterator.next(element));
  EXPECT_EQ(test::message_of([&] { iterator.next(element); }),
            "[data] map: element 5: photos/5.jpg is no image");
  ASSERT_TRUE(iterator.next(element));  // it can go on behind it
  EXPECT_EQ(number(element), 6);
}

TEST(Dataset, RefusesWhatMakesNoSense) {
  const Dataset data = Dataset::range(4);
  EXPECT_THROW(data.batch(0), UserError);
  EXPECT_THROW(data.shard(2, 2), UserError);
  EXPECT_THROW(data.repeat(-2), UserError);
  EXPECT_THROW(data.prefetch(0), UserError);
  EXPECT_THROW(data.map([](const Element& e) { return e; }, {.num_parallel_calls = 0}), UserError);
  EXPECT_THROW(data.unbatch(), UserError);
  EXPECT_THROW(stream(4).shuffle(), UserError);
  EXPECT_THROW(Dataset::range(0, 5, 0), UserError);
  EXPECT_THROW(data.concatenate(Dataset::from_tensors({Tensor(Meta{Dtype::uint8, Shape{2}})})),
               UserError);
  EXPECT_THROW(Dataset::zip({}), UserError);
}

// Or two random flips in a row would always cancel.
TEST(Dataset, StagesWithoutASeedDrawDifferently) {
  const auto add_bit = [](const Element& in, uint64_t key) {
    Tensor next(Meta{Dtype::int64, Shape()});
    *next.data_as<int64_t>() = 2 * *in[0].data_as<int64_t>() + static_cast<int64_t>(key >> 63);
    return Element{next};
  };
  const Dataset zeros = Dataset::range(400).map([](const Element&) {
    Tensor zero(Meta{Dtype::int64, Shape()});
    *zero.data_as<int64_t>() = 0;
    return Element{zero};
  });
  const List drawn = numbers(zeros.map_random(add_bit).map_random(add_bit));
  for (int64_t both = 0; both < 4; ++both)
    EXPECT_GT(std::count(drawn.begin(), drawn.end(), both), 60) << both;
  EXPECT_EQ(numbers(zeros.map_random(add_bit).map_random(add_bit)), drawn);
}

}  // namespace
}  // namespace pl::dataset_test

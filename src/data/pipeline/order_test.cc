// The order of a pipeline's elements, and places in it that are saved and restored.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/pipeline/dataset.h"
#include "data/pipeline/testing.h"
#include "tests/messages.h"

namespace pl::order_test {
namespace {

using List = std::vector<int64_t>;

TEST(Shuffle, OverIndicesIsAPermutationOfAllForEachEpoch) {
  const Dataset data = Dataset::range(1000).shuffle(1, {.seed = 5});
  const List first = numbers(data, 0), second = numbers(data, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(numbers(data, 0), first);
  for (List list : {first, second}) {
    std::sort(list.begin(), list.end());
    EXPECT_EQ(list, iota(1000));
  }
  EXPECT_EQ(
      numbers(Dataset::range(1000).shuffle(1, {.seed = 5, .reshuffle_each_iteration = false}), 1),
      first);
  // repeat gives each pass an order of its own, and that of the epochs.
  const List twice = numbers(data.repeat(2));
  EXPECT_EQ(List(twice.begin(), twice.begin() + 1000), first);
  EXPECT_EQ(List(twice.begin() + 1000, twice.end()), second);
}

TEST(Shuffle, GoesInFrontOfMaps) {
  const Dataset data =
      Dataset::range(100).map([](const Element& e) { return times(e, 2); }).shuffle();
  EXPECT_TRUE(data.stage()->indexable());
  EXPECT_EQ(data.stage()->name(), "map");
  EXPECT_EQ(data.stage()->inputs()[0]->name(), "shuffle");
  List list = numbers(data);
  EXPECT_FALSE(std::is_sorted(list.begin(), list.end()));
  std::sort(list.begin(), list.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(list[static_cast<size_t>(i)], 2 * i);
}

TEST(Shuffle, OverStreamsMixesWithinItsBuffer) {
  const Dataset data = stream(500).shuffle(50, {.seed = 1});
  const List list = numbers(data);
  EXPECT_NE(list, numbers(data, 1));
  List sorted = list;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, iota(500));
  for (size_t i = 0; i < list.size(); ++i) EXPECT_LT(list[i], static_cast<int64_t>(i) + 50);
  // 4 KiB of packed numbers: the elements' own bytes decide, not pages.
  EXPECT_LT(stream(1).shuffle(512).minimum_bytes() - stream(1).minimum_bytes(), 3 * 4096 + 1);
}

TEST(Shuffle, FiftyMillionNumbersCostNothing) {
  const Dataset data = Dataset::range(50'000'000).shuffle();
  EXPECT_LT(data.minimum_bytes(), 64 * kKiB);
  DatasetIterator iterator = data.with_options({.memory = "256KiB"}).iterate();
  std::set<int64_t> seen;
  Element element;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(iterator.next(element));
    seen.insert(number(element));
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_GT(*seen.rbegin(), 40'000'000);
}

// A bit of everything, with streams and without.
std::vector<Dataset> pipelines() {
  const auto twice = [](const Element& e) { return times(e, 2); };
  const auto jitter = [](const Element& e, uint64_t key) {
    return Element{scalar64(number(e) * 1000 + static_cast<int64_t>(key % 1000))};
  };
  const auto odd = [](const Element& e) { return number(e) % 3 != 1; };
  const MapOptions many{.num_parallel_calls = AUTOTUNE};
  return {
      Dataset::range(97).shuffle().map(twice, many).batch(4).prefetch(AUTOTUNE),
      Dataset::range(97).cache().shuffle().map_random(jitter, many).repeat(3).batch(5).prefetch(2),
      stream(97).shuffle(16).map(twice, many).batch(4).prefetch(AUTOTUNE),
      stream(97).map(twice, many).cache().repeat(2).shuffle(10).prefetch(3),
      Dataset::range(97).filter(odd).map_random(jitter, many).batch(3).unbatch().prefetch(1),
      Dataset::range(9)
          .interleave([](const Element& e) { return Dataset::range(number(e)); },
                      {.spec = int64_spec(), .cycle_length = 3})
          .shuffle(7)
          .batch(2),
      Dataset::zip({Dataset::range(40).shuffle(), stream(40)})
          .skip(3)
          .shard(2, 1)
          .window(3)
          .repeat(2),
      Dataset::sample_from_datasets({Dataset::range(30), stream(30)}).map(twice, many),
  };
}

TEST(Position, EveryPlaceIsRestoredExactlyAtAnyNumberOfThreads) {
  for (const Dataset& data : pipelines()) {
    const Dataset one = data.with_options({.threads = 1}), four = data.with_options({.threads = 4});
    const List whole = numbers(one, 2);
    ASSERT_GT(whole.size(), 20u);
    EXPECT_EQ(numbers(four, 2), whole);
    for (const int64_t stop : {0, 1, 7, 10}) {
      DatasetIterator before = four.iterate(2);
      List list = numbers(before, stop);
      const std::string position = before.save();
      EXPECT_LT(position.size(), 1024u);
      DatasetIterator after = one.iterate();
      after.restore(position);
      EXPECT_EQ(after.delivered(), stop);
      const List rest = numbers(after);
      list.insert(list.end(), rest.begin(), rest.end());
      EXPECT_EQ(list, whole) << stop;
      EXPECT_EQ(after.epoch(), 2u);
    }
  }
}

TEST(Position, OfAnotherPipelineOrDamagedIsRefused) {
  const Dataset data = Dataset::range(10).shuffle();
  const std::string position = data.iterate().save();
  DatasetIterator other = Dataset::range(11).shuffle().iterate();
  EXPECT_NE(test::message_of([&] { other.restore(position); }).find("that of another"),
            std::string::npos);
  DatasetIterator same = data.iterate();
  EXPECT_THROW(same.restore(position.substr(1)), DataError);
  EXPECT_THROW(same.restore(std::string(position.size(), 'x')), DataError);
  EXPECT_THROW(same.restore(""), DataError);
  // The number of elements before it is no more than there are.
  std::string beyond = position;
  beyond[24] = 99;
  EXPECT_THROW(same.restore(beyond), DataError);
}

TEST(Position, AHugePlaceIsReachedAtOnce) {
  int64_t calls = 0;
  const Dataset data = Dataset::range(int64_t{1} << 40)
                           .shuffle()
                           .map([&](const Element& e) { return ++calls, e; })
                           .batch(1 << 10);
  calls = 0;
  DatasetIterator iterator = data.iterate();
  EXPECT_EQ(iterator.advance(1 << 29), 1 << 29);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(iterator.next().has_value());
  EXPECT_EQ(calls, 1 << 10);
}

}  // namespace
}  // namespace pl::order_test

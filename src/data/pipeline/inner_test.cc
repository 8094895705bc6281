// Data sets made while a pipeline runs (flat_map, interleave), and elements that fail: who has
// which place, what is kept, what ends.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "base/error.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::inner_test {
namespace {

using test::TempFolder;
using List = std::vector<int64_t>;

Dataset tens(const std::function<Dataset(const Dataset&)>& inner, int64_t count = 5,
             int64_t cycle = 1) {
  return Dataset::range(count).interleave(
      [inner](const Element& e) {
        return inner(Dataset::range(10 * number(e), 10 * number(e) + 3));
      },
      {.spec = int64_spec(), .cycle_length = cycle, .inner_bytes = kMiB});
}

TEST(Inner, CachesAndSnapshotsAreOfTheirOwnDataSet) {
  const List wanted{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42};
  const TempFolder folder;
  const auto cached = [](const Dataset& d) { return d.cache(); };
  const auto kept = [&](const Dataset& d) { return d.snapshot(folder.path()); };
  const auto generated = [](const Dataset& d) {
    return d.filter([](const Element&) { return true; }).cache({.elements = 2});
  };
  EXPECT_EQ(numbers(tens(cached)), wanted);
  EXPECT_EQ(numbers(tens(kept)), wanted);
  EXPECT_EQ(numbers(tens(kept)), wanted);  // read back
  EXPECT_EQ(numbers(tens(generated)), wanted);
  const auto shuffled = [](const Dataset& d) { return d.cache().shuffle(); };
  const List mixed = numbers(tens(shuffled));
  EXPECT_EQ(std::set<int64_t>(mixed.begin(), mixed.end()),
            std::set<int64_t>(wanted.begin(), wanted.end()));
  // One data set for all outer elements, in several lanes at once.
  const Dataset shared = Dataset::range(4).cache();
  const Dataset same = Dataset::range(6).interleave(
      [shared](const Element&) { return shared; },
      {.spec = int64_spec(), .cycle_length = 3, .block_length = 2, .inner_bytes = kMiB});
  EXPECT_EQ(numbers(same).size(), 24U);
}

TEST(Inner, ACacheGoesWithItsDataSet) {
  // Each keeps a page; all of them together are more than the budget.
  const Dataset many =
      tens([](const Dataset& d) { return d.cache(); }, 2000).with_options({.memory = 2 * kMiB});
  DatasetIterator iterator = many.iterate();
  EXPECT_EQ(numbers(iterator).size(), 6000U);
  EXPECT_LE(iterator.report().ledger.payload_peak, 64 * kKiB);
}

Element key_of(const Element&, uint64_t key) { return {scalar64(static_cast<int64_t>(key >> 1))}; }

TEST(Inner, RandomStagesDrawOtherNumbersForEachDataSet) {
  for (const bool cached : {false, true}) {
    const Dataset drawn = tens([cached](const Dataset& d) {
      const Dataset mapped = d.map_random(key_of);
      return cached ? mapped.cache() : mapped;
    });
    const List all = numbers(drawn);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 15U);
    EXPECT_EQ(numbers(drawn), all);
    EXPECT_EQ(numbers(drawn, 1) == all, cached);
    DatasetIterator first = drawn.iterate(1), second = drawn.iterate(0);
    numbers(first, 7);
    second.restore(first.save());
    EXPECT_EQ(numbers(first), numbers(second));
  }
  const Dataset orders = Dataset::range(8).flat_map(
      [](const Element&) { return Dataset::range(16).shuffle().batch(16); },
      {.spec = {{{"x", Dtype::int64, Shape{16}}}}, .inner_bytes = kMiB});
  std::set<List> seen;
  for (DatasetIterator iterator = orders.iterate(); auto e = iterator.next();)
    seen.emplace((*e)[0].data_as<int64_t>(), (*e)[0].data_as<int64_t>() + 16);
  EXPECT_EQ(seen.size(), 8U);
  // Two stages of one data set.
  const Dataset twice = tens([](const Dataset& d) {
    return Dataset::zip({d.map_random(key_of), d.map_random(key_of)})
        .filter([](const Element& e) { return number(e) != *e[1].data_as<int64_t>(); })
        .map([](const Element& e) { return Element{e[0]}; });
  });
  EXPECT_EQ(numbers(twice).size(), 15U);
}

TEST(Inner, RepeatsOfRepeatsAreOtherEpochs) {
  std::set<List> seen;
  DatasetIterator iterator = Dataset::range(30)
                                 .shuffle()
                                 .repeat()
                                 .take(30)
                                 .repeat()
                                 .take(60)
                                 .repeat()
                                 .take(300)
                                 .batch(30)
                                 .iterate(1);
  for (Element e; iterator.next(e);)
    seen.emplace(e[0].data_as<int64_t>(), e[0].data_as<int64_t>() + 30);
  EXPECT_EQ(seen.size(), 10U);
}

Dataset throwing_at(const std::set<int64_t>& bad, int64_t count = 16) {
  return Dataset::range(count).map(
      [bad](const Element& in) -> Element {
        if (bad.contains(number(in))) throw std::runtime_error("bad");
        return in;
      },
      {.spec = int64_spec()});
}

Element same(const Element& in) { return in; }

// What comes, a number for each element that fails: -1. With a position taken and given to another
// iterator after each.
List with_failures(const Dataset& data, bool moving) {
  List list;
  DatasetIterator iterator = data.iterate(3);
  for (Element e;;) {
    try {
      if (!iterator.next(e)) return list;
      for (int64_t i = 0; i < e[0].shape().elements(); ++i)
        list.push_back(e[0].data_as<int64_t>()[i]);
    } catch (const DataError&) {
      list.push_back(-1);
    }
    if (!moving) continue;
    DatasetIterator other = data.iterate(0);
    other.restore(iterator.save());
    iterator = std::move(other);
  }
}

TEST(Failing, BatchesAreTheSameHoweverTheyAreMade) {
  const auto stream = [](const Element&) { return true; };
  for (const bool indexed : {true, false}) {
    Dataset source = throwing_at({5, 6, 15});
    if (!indexed) source = source.filter(stream);
    for (const int64_t calls : {int64_t{1}, int64_t{2}, AUTOTUNE}) {
      const auto behind = [&](const Dataset& grouped) {
        return grouped
            .map(same,
                 {.num_parallel_calls = calls, .spec = grouped.element_spec(), .max_bytes = 4096})
            .with_options({.threads = 2});
      };
      const Dataset batches = behind(source.batch(4));
      const List places{0, 1, 2, 3, -1, 8, 9, 10, 11, -1}, good{0, 1, 2, 3, 8, 9, 10, 11};
      EXPECT_EQ(with_failures(batches, false), places);
      EXPECT_EQ(with_failures(batches, true), places);
      EXPECT_EQ(numbers(batches.ignore_errors()), good);
      EXPECT_EQ(with_failures(batches.ignore_errors(), true), good);
      EXPECT_EQ(numbers(behind(source.padded_batch(4)).ignore_errors()), good);
      const List windows{0, 1, 2, 2, 3, 4, -1, -1, 8, 9, 10, 10, 11, 12, 12, 13, 14};
      const Dataset sliding = behind(source.window(3, {.shift = 2}));
      EXPECT_EQ(with_failures(sliding, false), windows);
      EXPECT_EQ(with_failures(sliding, true), windows);
    }
  }
  const Dataset rows = throwing_at({5}).batch(4).unbatch();
  EXPECT_EQ(with_failures(rows, true), with_failures(rows, false));
}

TEST(Failing, ACheckThatFailsEndsTheStream) {
  const auto counting = [](int64_t count) {
    return Dataset::from_generator(
        [count] {
          return [count, i = int64_t{0}]() mutable -> std::optional<Element> {
            if (i == count) return {};
            return Element(1, scalar64(i++));
          };
        },
        int64_spec());
  };
  EXPECT_EQ(numbers(counting(3).assert_cardinality(5).ignore_errors()), (List{0, 1, 2}));
  EXPECT_EQ(numbers(counting(7).assert_cardinality(5).ignore_errors()), (List{0, 1, 2, 3, 4}));
  EXPECT_EQ(numbers(counting(5).assert_cardinality(5)).size(), 5U);
  EXPECT_EQ(with_failures(counting(3).assert_cardinality(5), true), (List{0, 1, 2, -1}));
  EXPECT_EQ(with_failures(counting(7).assert_cardinality(5), true), (List{0, 1, 2, 3, 4, -1}));
}

TEST(Failing, AWrongSignatureIsAMistakeOfTheProgram) {
  const auto wrong = [] {
    return []() -> std::optional<Element> {
      return Element(1, Tensor(Meta{Dtype::int64, Shape{3}}));
    };
  };
  DatasetIterator iterator = Dataset::from_generator(wrong, int64_spec()).ignore_errors().iterate();
  Element e;
  EXPECT_THROW(iterator.next(e), UserError);
}

TEST(Failing, ElementsHaveFields) {
  const auto none = [] { return []() -> std::optional<Element> { return Element(); }; };
  EXPECT_THROW(Dataset::from_generator(none, {}), UserError);
  EXPECT_THROW(Dataset::from_tensors({}), UserError);
  EXPECT_THROW(Dataset::range(3).map([](const Element&) { return Element(); }), UserError);
  EXPECT_THROW(Dataset::range(3).map([](const Element&) -> Element { throw 3; }), UserError);
}

TEST(Failing, WhatWasMovedFrom) {
  Dataset data = Dataset::range(3);
  const Dataset taken = std::move(data);
  EXPECT_EQ(numbers(data), numbers(taken));
  DatasetIterator iterator = taken.iterate(), other = std::move(iterator);
  EXPECT_THROW(iterator.next(), UserError);
  EXPECT_THROW(iterator.advance(1), UserError);
  EXPECT_THROW(iterator.start(0), UserError);
  EXPECT_THROW(iterator.report(), UserError);
  EXPECT_EQ(numbers(other).size(), 3U);
}

TEST(Failing, NumbersNearTheLargest) {
  const Dataset most = Dataset::range(INT64_MAX);
  EXPECT_EQ(most.concatenate(most).cardinality(), kInfiniteCardinality);
  EXPECT_THROW(Dataset::range(INT64_MIN, INT64_MAX), UserError);
  DatasetIterator last = most.batch(1000).iterate();
  EXPECT_EQ(last.advance(INT64_MAX / 1000), INT64_MAX / 1000);
  EXPECT_EQ(numbers(last).back(), INT64_MAX - 1);
  const Dataset stream = Dataset::range(3).filter([](const Element&) { return true; });
  try {
    stream.shuffle(int64_t{1} << 50).iterate();
    FAIL() << "a buffer of 8 PiB";
  } catch (const DoesNotFit& error) {
    EXPECT_NE(std::string(error.what()).find("shuffle"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pl::inner_test

// Elements whose size nobody said, the least that runs, and places far away.
#include <gtest/gtest.h>

#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "data/pipeline/text_stages.h"
#include "tests/data_files.h"

namespace pl::sizes_test {
namespace {

using test::TempFolder;
using test::write_bytes;
using List = std::vector<int64_t>;

// Element i has i % 7 + 1 numbers, all i.
std::function<std::optional<Element>()> counting(int64_t n) {
  return [n, i = int64_t{0}]() mutable -> std::optional<Element> {
    if (i == n) return {};
    Tensor x(Meta{Dtype::int64, Shape{i % 7 + 1}});
    std::fill_n(x.data_as<int64_t>(), i % 7 + 1, i);
    ++i;
    return Element(1, x);
  };
}
Dataset unsized(int64_t n) {
  return Dataset::from_generator([n] { return counting(n); },
                                 {{{"x", Dtype::int64, Shape{kUnknown}}}});
}
Dataset scalars(int64_t n) {
  return Dataset::from_generator(
      [n] {
        return [n, i = int64_t{0}]() mutable -> std::optional<Element> {
          if (i == n) return {};
          return Element(1, scalar64(i++));
        };
      },
      int64_spec());
}

int64_t length(const Element& in) { return in[0].shape().elements(); }

int64_t count(const Dataset& data) {
  DatasetIterator iterator = data.iterate();
  int64_t n = 0;
  for (Element e; iterator.next(e);) ++n;
  EXPECT_LE(iterator.report().ledger.payload_peak, iterator.report().ledger.budget);
  return n;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<Dataset> groupings(const Dataset& data) {
  return {data.padded_batch(32),
          data.padded_batch(32).prefetch(AUTOTUNE),
          data.shuffle(100).padded_batch(8),
          data.shuffle({.bytes = "256KiB"}).padded_batch(8),
          data.bucket_by_sequence_length(length, {3, 6}, {16, 16, 16}),
          data.cache().padded_batch(8),
          data.take(7).cache().shuffle(3),
          data.padded_batch(4, {.padded_shapes = {Shape{8}}}).cache()};
}

TEST(DatasetSizes, GroupsOfUnknownElementsRunInAnOrdinaryBudget) {
  for (const Dataset& data : groupings(unsized(200))) {
    EXPECT_GT(count(data), 0) << data.stage()->name();
    EXPECT_GT(count(data.with_options({.memory = "16MiB"})), 0) << data.stage()->name();
    EXPECT_LE(data.budget(), 64 * kMiB) << data.stage()->name();
  }
  // Batches of elements that turn out to have one shape.
  const Dataset same = Dataset::from_generator(
      [] {
        return [i = 0]() mutable -> std::optional<Element> {
          if (++i > 100) return {};
          return Element(1, Tensor(Meta{Dtype::uint8, Shape{50}}));
        };
      },
      {{{"x", Dtype::uint8, Shape{kUnknown}}}});
  EXPECT_EQ(count(same.batch(32)), 4);
  EXPECT_EQ(count(same.window(10).with_options({.memory = "4MiB"})), 10);
}

TEST(DatasetSizes, TheLeastIsAlwaysAnsweredAndRuns) {
  std::vector<Dataset> all = groupings(unsized(50));
  all.push_back(Dataset::range(100).batch(8).cache());
  all.push_back(Dataset::range(100).cache({.elements = 10}).shuffle().batch(8).prefetch(2));
  all.push_back(unsized(50));
  all.push_back(unsized(10).repeat().take(20));
  for (const Dataset& data : all) {
    const Bytes least = data.minimum_bytes();
    EXPECT_GT(count(data.with_options({.memory = least})), 0) << data.stage()->name();
    EXPECT_THROW(data.with_options({.memory = least - 1}).budget(), DoesNotFit)
        << data.stage()->name();
    EXPECT_LE(least, 8 * kMiB) << data.stage()->name();
    // Whatever budget it has.
    EXPECT_EQ(data.with_options({.memory = "1GiB"}).minimum_bytes(), least);
  }
}

TEST(DatasetSizes, WhatIsTooSmallIsToldHowToMendIt) {
  const std::string unknown =
      message_of([] { unsized(9).padded_batch(32).with_options({.memory = "64KiB"}).budget(); });
  EXPECT_NE(unknown.find("received 64.0 KiB; say how large elements are at most (max_bytes of "
                         "generator, here taken for 4.00 KiB)"),
            std::string::npos)
      << unknown;
  EXPECT_NE(unknown.find("padded_batch(32)"), std::string::npos) << unknown;
  const std::string known =
      message_of([] { Dataset::range(99).batch(32).with_options({.memory = "4KiB"}).budget(); });
  EXPECT_EQ(known.find("max_bytes"), std::string::npos) << known;
  EXPECT_NE(known.find("make batches or buffers smaller"), std::string::npos) << known;
  // An element above its share is told so.
  const Dataset large = Dataset::from_generator(
      [] {
        return [i = 0]() mutable -> std::optional<Element> {
          if (++i > 3) return {};
          return Element(1, Tensor(Meta{Dtype::uint8, Shape{i == 3 ? 900'000 : 10}}));
        };
      },
      {{{"x", Dtype::uint8, Shape{kUnknown}}}});
  const Dataset grouped = large.padded_batch(32).with_options({.memory = "8MiB"});
  const std::string above = message_of([&] { count(grouped); });
  EXPECT_NE(above.find("generator: element 2: expected an element of at most"), std::string::npos)
      << above;
  EXPECT_NE(above.find("larger max_bytes"), std::string::npos) << above;
}

TEST(DatasetSizes, NoMoreThanThereAreElements) {
  const Dataset few =
      Dataset::from_reader(3,
                           [](int64_t) {
                             return Element{Tensor(Meta{Dtype::uint8, Shape{100'000}})};
                           },
                           {{{"x", Dtype::uint8, Shape{100'000}}}});
  EXPECT_LT(few.batch(10'000).minimum_bytes(), 4 * kMiB);
  EXPECT_EQ(count(few.batch(10'000).with_options({.memory = "4MiB"})), 1);
  EXPECT_LT(few.padded_batch(10'000).minimum_bytes(), 4 * kMiB);
  EXPECT_EQ(count(few.filter([](const Element&) { return true; })
                      .assert_cardinality(3)
                      .shuffle(10'000)
                      .with_options({.memory = "4MiB"})),
            3);
}

TEST(DatasetSizes, LinesOfTextAsEverybodyReadsThem) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i) + "\n";
  const Dataset lines = text_line_dataset({write_bytes(folder / "a.txt", text)});
  EXPECT_EQ(count(lines.shuffle(10'000).padded_batch(32)), 94);
  EXPECT_EQ(count(lines.shuffle(10'000).padded_batch(32).with_options({.memory = "64MiB"})), 94);
  EXPECT_EQ(count(pack_sequences(byte_tokens(lines.shuffle(100)), 64)
                      .batch(8)
                      .with_options({.memory = "4MiB"})),
            51);
}

TEST(DatasetSizes, ABufferOfBytesHasOneOrderInAnyBudget) {
  const auto order = [](const char* memory) {
    DatasetIterator iterator = unsized(300)
                                   .shuffle({.bytes = "100KiB", .seed = 4})
                                   .with_options({.memory = memory})
                                   .iterate();
    List list;
    for (Element e; iterator.next(e);) list.push_back(number(e));
    return list;
  };
  const List small = order("1MiB");
  EXPECT_EQ(small.size(), 300u);
  EXPECT_EQ(small, order("64MiB"));
  EXPECT_FALSE(std::is_sorted(small.begin(), small.end()));
}

TEST(DatasetSizes, AbsurdOptionsAreRefused) {
  const Dataset r = Dataset::range(4);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { r.with_options({.memory = -1}); }, [&] { r.with_options({.memory = INT64_MAX}); },
           [&] { r.with_options({.threads = -1}); }, [&] { r.with_options({.threads = 5000}); },
           [&] { r.cache({.bytes = -5}); }, [&] { r.cache({.elements = -1}); },
           [&] { r.prefetch({.bytes = -1}); }, [&] { r.prefetch(-7); }, [&] { r.shuffle(0); },
           [&] { r.shuffle(-1); }, [&] { r.repeat().cache(); },
           [&] { r.repeat().snapshot("nowhere"); },
           [&] { r.map([](const Element& e) { return e; }, {.max_bytes = -3}); },
           [&] {
             Dataset::sample_from_datasets({r, r}, {.weights = {0, 0}});
           },
           [&] {
             Dataset::sample_from_datasets({r, r}, {.weights = {1}});
           },
           [&] { r.padded_batch(2, {.padding_values = {1.5}}); },
           [&] { r.padded_batch(2, {.padding_values = {0x1p63}}); },
           [&] {
             r.padded_batch(2, {.padding_values = {1, 2}});
           },
           [&] { scalars(3).shuffle(ShuffleOptions{}); }}) {
    const std::string message = message_of(call);
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    EXPECT_NE(message.find("received"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([&] { r.repeat().cache(); }).find("in front of repeat()"),
            std::string::npos);
  // A buffer larger than any memory is one that does not fit.
  EXPECT_THROW(scalars(3).shuffle(INT64_MAX).with_options({.memory = "1GiB"}).iterate(),
               DoesNotFit);
}

TEST(Position, CountsBelowZeroOrBeyondTheEnd) {
  const std::vector<Dataset> all{
      Dataset::range(10),
      Dataset::range(10).map([](const Element& e) { return e; }),
      Dataset::range(10).map([](const Element& e) { return e; }, {.num_parallel_calls = 3}),
      Dataset::range(10).shuffle(),
      scalars(10),
      scalars(10).shuffle(3),
      Dataset::range(10).cache(),
      scalars(10).cache(),
      Dataset::range(10).prefetch(2),
      Dataset::range(10).repeat(1),
      scalars(10).repeat(1),
      Dataset::range(12).skip(2),
      Dataset::range(30).shard(3, 1),
      scalars(30).shard(3, 2),
      Dataset::range(10).take(99),
      Dataset::range(10).batch(1),
      scalars(10).batch(1),
      Dataset::range(10).batch(10).unbatch(),
      Dataset::range(10).enumerate(),
      Dataset::range(4).concatenate(Dataset::range(6)),
      Dataset::zip({Dataset::range(10), Dataset::range(11)}),
      Dataset::range(11).window(2, {.shift = 1}),
      scalars(11).window(2, {.shift = 1}),
      scalars(10).filter([](const Element&) { return true; }),
      scalars(10).assert_cardinality(10),
      scalars(10).ignore_errors()};
  for (const Dataset& data : all) {
    const std::string& name = data.stage()->name();
    DatasetIterator iterator = data.iterate();
    EXPECT_THROW(iterator.advance(-1), UserError) << name;
    EXPECT_THROW(iterator.advance(INT64_MIN), UserError) << name;
    EXPECT_EQ(iterator.advance(0), 0) << name;
    EXPECT_EQ(iterator.advance(4), 4) << name;
    Element element;
    ASSERT_TRUE(iterator.next(element)) << name;
    EXPECT_EQ(iterator.advance(INT64_MAX), 5) << name;
    EXPECT_FALSE(iterator.next(element)) << name;
    EXPECT_EQ(iterator.advance(INT64_MAX), 0) << name;
    // Where a place was passed over, the next element is the one behind it.
    const List whole = numbers(data);
    DatasetIterator later = data.iterate();
    later.advance(7);
    ASSERT_TRUE(later.next(element)) << name;
    const size_t step = whole.size() / 10;
    EXPECT_EQ(number(element), whole[7 * step]) << name;
  }
}

TEST(Position, DataWithoutEndAreReachedAtOnceOrRefused) {
  for (const Dataset& data :
       {Dataset::range(10).repeat(), Dataset::range(10).shuffle().repeat().batch(3),
        Dataset::range(10).repeat().shard(3, 1), scalars(10).repeat()}) {
    DatasetIterator iterator = data.iterate();
    EXPECT_THROW(iterator.advance(INT64_MAX), UserError);
    EXPECT_EQ(iterator.advance(1000), 1000);
    Element element;
    EXPECT_TRUE(iterator.next(element));
  }
  DatasetIterator far = Dataset::range(10).repeat().shard(3, 1).iterate();
  EXPECT_EQ(far.advance(1'000'000'000'000), 1'000'000'000'000);
  EXPECT_EQ(number(*far.next()), (3 * 1'000'000'000'000 + 1) % 10);
}

}  // namespace
}  // namespace pl::sizes_test

// The ledger's promises: what is held stays within the budget whatever is asked for, impossible
// budgets fail before anything runs, and threads never hang.
#include "data/pipeline/ledger.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "data/pipeline/dataset.h"
#include "data/pipeline/testing.h"

namespace pl::ledger_test {
namespace {

constexpr Bytes kElement = 64 * kKiB;

// Elements of 64 KiB whose bytes are their number.
Dataset blocks(int64_t n) {
  return Dataset::from_reader(n,
                              [](int64_t i) {
                                Tensor block(Meta{Dtype::uint8, Shape{kElement}});
                                std::memset(block.data(), static_cast<int>(i % 251),
                                            static_cast<size_t>(kElement));
                                return Element{block};
                              },
                              {{{"x", Dtype::uint8, Shape{kElement}}}});
}

Element copied(const Element& in) {
  Tensor out(in[0].meta());
  std::memcpy(out.data(), in[0].data(), static_cast<size_t>(in[0].meta().bytes()));
  return {out};
}

TEST(Ledger, LendsWhatTheFloorLeaves) {
  Ledger ledger(100 * 4096, 40 * 4096);
  Loan first = ledger.try_ahead(50 * 4096);
  EXPECT_TRUE(first);
  EXPECT_FALSE(ledger.try_ahead(11 * 4096));
  first.settle(20 * 4096);
  Loan second = ledger.try_ahead(40 * 4096);
  EXPECT_TRUE(second);
  EXPECT_EQ(ledger.figures().ahead, 60 * 4096);
  second = Loan();
  first = Loan();
  EXPECT_EQ(ledger.figures().ahead, 0);
  EXPECT_EQ(ledger.figures().ahead_peak, 60 * 4096);
  EXPECT_EQ(ledger.figures().refusals, 1);
}

TEST(Ledger, ImpossibleBudgetsFailAtOnceWithATable) {
  const Dataset data = blocks(100).batch(8).prefetch(4);
  // When the pipeline is built, at the stage that is too much.
  EXPECT_THROW(blocks(100).with_options({.memory = "512KiB"}).batch(8), DoesNotFit);
  try {
    data.with_options({.memory = "512KiB"});
    FAIL();
  } catch (const DoesNotFit& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.exit_code(), 3);
    for (const char* part : {"expected memory of at least", "received 512", "reader", "batch(8)",
                             "prefetch(4)", "the consumer"})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
  // With the least it says it needs, it runs.
  const Dataset least = data.with_options({.memory = data.minimum_bytes()});
  DatasetIterator iterator = least.iterate();
  int64_t count = 0;
  for (Element batch; iterator.next(batch);) ++count;
  EXPECT_EQ(count, 13);
  EXPECT_LE(iterator.report().ledger.payload_peak, data.minimum_bytes());
}

// Whatever parallelism, shuffle and prefetch ask for.
TEST(Ledger, PayloadsStayWithinTheBudget) {
  for (const Bytes budget : {1500 * kKiB, 4 * kMiB, 16 * kMiB}) {
    const Dataset data = blocks(400)
                             .shuffle(1000)
                             .map(copied, {.num_parallel_calls = 64})
                             .map(copied, {.num_parallel_calls = AUTOTUNE})
                             .batch(4)
                             .prefetch(1000)
                             .with_options({.memory = budget, .threads = 4});
    DatasetIterator iterator = data.iterate();
    int64_t count = 0;
    for (Element batch; iterator.next(batch);) ++count;
    EXPECT_EQ(count, 100);
    const LedgerFigures figures = iterator.report().ledger;
    EXPECT_LE(figures.payload_peak, budget);
    EXPECT_LE(figures.floor + figures.ahead_peak, budget);
    EXPECT_EQ(figures.ahead, 0);
  }
}

TEST(Ledger, ASlowConsumerFillsTheBudgetAndNoMore) {
  const Bytes budget = 4 * kMiB;
  DatasetIterator iterator = blocks(400)
                                 .map(copied, {.num_parallel_calls = 8})
                                 .prefetch(1000)
                                 .with_options({.memory = budget, .threads = 2})
                                 .iterate();
  Element element;
  ASSERT_TRUE(iterator.next(element));
  for (int i = 0; i < 200 && iterator.report().ledger.refusals == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const LedgerFigures figures = iterator.report().ledger;
  EXPECT_GT(figures.refusals, 0);
  EXPECT_GT(figures.payload_peak, budget / 2);
  EXPECT_LE(figures.payload_peak, budget);
}

TEST(Ledger, ElementsOfUnknownSizeHaveABound) {
  const ElementSpec spec{{{"x", Dtype::uint8, Shape{kUnknown}}}};
  const auto read = [](int64_t i) {
    return Element{Tensor(Meta{Dtype::uint8, Shape{i == 3 ? 40'000 : 10'000}})};
  };
  const Dataset small = Dataset::from_reader(5, read, spec, {.max_bytes = 20'000});
  DatasetIterator iterator = small.iterate();
  Element element;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(iterator.next(element));
  try {
    iterator.next(element);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("element 3: expected an element of at most 20"),
              std::string::npos)
        << error.what();
  }
  ASSERT_TRUE(iterator.next(element));
  EXPECT_FALSE(iterator.next(element));
}

TEST(Ledger, AFunctionThatTakesTooMuchIsNamed) {
  const Dataset data = blocks(4)
                           .map(
                               [](const Element& e) {
                                 Tensors hoard;
                                 for (int i = 0; i < 100; ++i) hoard.push_back(copied(e)[0]);
                                 return e;
                               },
                               {.spec = {{{{"x", Dtype::uint8, Shape{kElement}}}}}})
                           .with_options({.memory = "1MiB"});
  DatasetIterator iterator = data.iterate();
  Element element;
  try {
    iterator.next(element);
    FAIL();
  } catch (const DoesNotFit& error) {
    EXPECT_NE(std::string(error.what()).find("[data] map: element 0"), std::string::npos);
  }
}

TEST(Threads, HalfConsumedPipelinesEnd) {
  for (int taken = 0; taken < 12; ++taken) {
    DatasetIterator iterator = blocks(1000)
                                   .map(copied, {.num_parallel_calls = 16})
                                   .cache({.bytes = "1MiB"})
                                   .batch(2)
                                   .prefetch(AUTOTUNE)
                                   .repeat()
                                   .prefetch(4)
                                   .with_options({.memory = "8MiB", .threads = 3})
                                   .iterate();
    Element element;
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(iterator.next(element));
  }
}

TEST(Threads, EpochsCanBeLeftInTheMiddle) {
  DatasetIterator iterator = blocks(100)
                                 .shuffle()
                                 .map(copied, {.num_parallel_calls = AUTOTUNE})
                                 .prefetch(4)
                                 .with_options({.memory = "4MiB", .threads = 2})
                                 .iterate();
  Element element;
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    iterator.start(epoch);
    for (uint64_t i = 0; i < epoch % 7; ++i) ASSERT_TRUE(iterator.next(element));
  }
  EXPECT_LE(iterator.report().ledger.payload_peak, 4 * kMiB);
}

TEST(Threads, EpochsDoNotGrow) {
  const auto resident = [] {
    std::ifstream in("/proc/self/statm");
    int64_t all = 0, here = 0;
    in >> all >> here;
    return here * 4096;
  };
  DatasetIterator iterator = blocks(20)
                                 .shuffle()
                                 .map(copied, {.num_parallel_calls = 4})
                                 .batch(4)
                                 .prefetch(AUTOTUNE)
                                 .with_options({.memory = "8MiB", .threads = 2})
                                 .iterate();
  Element element;
  const auto epochs = [&](uint64_t from, uint64_t to) {
    for (uint64_t epoch = from; epoch < to; ++epoch) {
      iterator.start(epoch);
      while (iterator.next(element)) {
      }
    }
  };
  epochs(0, 20);
  const int64_t before = resident();
  epochs(20, 220);
  // The pool keeps pages within the budget; a sanitizer keeps what was freed.
  if (!PLIMSOLL_SANITIZED) {
    EXPECT_LT(resident() - before, 1 * kMiB);
  }
}

TEST(Threads, WorkIsSpreadAndOrderKept) {
  std::atomic<int> inside{0}, most{0};
  const Dataset data = Dataset::range(64).map(
      [&](const Element& e) {
        int now = ++inside, seen = most;
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        --inside;
        return e;
      },
      {.num_parallel_calls = 4});
  DatasetIterator iterator = data.with_options({.threads = 4}).iterate();
  const std::vector<int64_t> list = numbers(iterator);
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_EQ(list.size(), 64u);
  EXPECT_GE(most, 2);
  EXPECT_LE(most, 4);  // never more calls at once than were asked for
}

TEST(Threads, ElementsOutliveTheIterator) {
  Element kept;
  {
    DatasetIterator iterator = blocks(5).prefetch(2).iterate();
    ASSERT_TRUE(iterator.next(kept));
    ASSERT_TRUE(iterator.next(kept));
  }
  EXPECT_EQ(kept[0].data_as<uint8_t>()[kElement - 1], 1);
}

TEST(Cache, FillsOnceAndSpills) {
  std::atomic<int> reads{0};
  for (const bool indexed : {true, false}) {
    reads = 0;
    const auto read = [&](int64_t i) {
      ++reads;
      Tensor block(Meta{Dtype::uint8, Shape{kElement}});
      std::memset(block.data(), static_cast<int>(i), static_cast<size_t>(kElement));
      return Element{block};
    };
    const ElementSpec spec{{{"x", Dtype::uint8, Shape{kElement}}}};
    Dataset data = indexed
                       ? Dataset::from_reader(40, read, spec)
                       : Dataset::from_generator(
                             [read] {
                               return [read, i = int64_t{0}]() mutable -> std::optional<Element> {
                                 if (i == 40) return {};
                                 return read(i++);
                               };
                             },
                             spec);
    DatasetIterator iterator =
        data.cache({.bytes = "640KiB"}).with_options({.memory = "2MiB"}).iterate();
    Element element;
    for (int i = 0; i < 25; ++i) ASSERT_TRUE(iterator.next(element));  // an epoch that is left
    for (uint64_t epoch = 1; epoch < 4; ++epoch) {
      iterator.start(epoch);
      int count = 0;
      while (iterator.next(element)) {
        EXPECT_EQ(element[0].data_as<uint8_t>()[17], count);
        ++count;
      }
      EXPECT_EQ(count, 40);
    }
    EXPECT_EQ(reads, 40);
    EXPECT_LE(iterator.report().ledger.payload_peak, 2 * kMiB);
  }
}

TEST(Cache, KeepsElementsOfUnknownSizeInAFile) {
  int reads = 0;
  const Dataset data = Dataset::from_reader(6,
                                            [&](int64_t i) {
                                              ++reads;
                                              Tensor row(Meta{Dtype::int64, Shape{i}});
                                              for (int64_t k = 0; k < i; ++k)
                                                row.data_as<int64_t>()[k] = 10 * i + k;
                                              return Element{row};
                                            },
                                            {{{"x", Dtype::int64, Shape{kUnknown}}}});
  DatasetIterator iterator = data.cache().iterate();
  const std::vector<int64_t> first = numbers(iterator);
  iterator.start(1);
  EXPECT_EQ(numbers(iterator), first);
  EXPECT_EQ(first.size(), 15u);
  EXPECT_EQ(reads, 6);
}

TEST(Budget, ACachesIndexTakesNoMemory) {
  constexpr int64_t kCount = 200'000;
  const auto heap = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return static_cast<Bytes>(info.uordblks + info.hblkhd);
  };
  for (const bool known : {true, false}) {
    const ElementSpec spec{{{"x", Dtype::int64, known ? Shape() : Shape{kUnknown}}}};
    const auto row = [known](const Element& in) -> Element {
      if (known) return in;
      Tensor list(Meta{Dtype::int64, Shape{1}});
      *list.data_as<int64_t>() = number(in);
      return {list};
    };
    const Dataset data = Dataset::range(known ? kCount : kCount / 2)
                             .map(row, {.spec = spec, .max_bytes = 4096})
                             .cache({.elements = known ? 1000 : 0})
                             .with_options({.memory = "1MiB"});
    DatasetIterator iterator = data.iterate();
    const Bytes before = heap();
    int64_t wanted = 0;
    for (Element e; iterator.next(e); ++wanted) ASSERT_EQ(number(e), wanted);
    EXPECT_LT(heap() - before, 256 * kKiB);
    EXPECT_EQ(wanted, data.cardinality());
    iterator.start(1);  // from the file, in the middle too
    EXPECT_EQ(iterator.advance(wanted - 3), wanted - 3);
    EXPECT_EQ(number(*iterator.next()), wanted - 3);
    EXPECT_LE(iterator.report().ledger.payload_peak, kMiB);
  }
}

}  // namespace
}  // namespace pl::ledger_test

// Pipelines that are left in the middle: whatever stages and threads are under way, they end.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "data/pipeline/dataset.h"
#include "data/pipeline/testing.h"

namespace pl::left_early_test {
namespace {

Element slow(const Element& in) {
  std::this_thread::sleep_for(std::chrono::microseconds(50 + number(in) % 7 * 40));
  return in;
}

Generator<Element> counted() {
  for (int64_t i = 0; i < 300; ++i) co_yield Element(1, scalar64(i));
}

Element failing(const Element& in) {
  if (number(in) % 5 == 3) throw DataError("a fifth of them");
  return slow(in);
}

std::vector<Dataset> pipelines() {
  const MapOptions many{.num_parallel_calls = AUTOTUNE}, eight{.num_parallel_calls = 8};
  const Dataset stream = Dataset::from_generator(counted, int64_spec());
  return {
      Dataset::range(300).shuffle().map(slow, many).batch(3).prefetch(AUTOTUNE),
      stream.shuffle(20).map(slow, eight).prefetch(2).map(slow, many).prefetch(AUTOTUNE),
      stream.map(slow, many).cache({.bytes = "64KiB"}).repeat().batch(4).prefetch(4).unbatch(),
      Dataset::range(50)
          .interleave([](const Element& e) { return Dataset::range(number(e)).map(slow); },
                      {.spec = int64_spec(), .cycle_length = 4})
          .prefetch(8)
          .filter([](const Element& e) { return number(e) % 3 > 0; })
          .map(slow, eight)
          .prefetch(1),
      Dataset::zip({stream.prefetch(3), Dataset::range(300).map(slow, many).prefetch(3)})
          .map(slow, many)
          .prefetch(AUTOTUNE),
      Dataset::sample_from_datasets(
          {stream.map(slow, many).prefetch(2), Dataset::range(300).map(slow, eight).prefetch(2)})
          .batch(2)
          .prefetch(3),
      Dataset::range(300).map(failing, many).ignore_errors().batch(2).prefetch(AUTOTUNE),
      Dataset::range(300).map(failing, eight).prefetch(AUTOTUNE),
  };
}

TEST(LeftEarly, EveryPipelineEndsWhereverItIsLeft) {
  for (const int threads : {1, 2, 8})
    for (const Bytes memory : {Bytes{0}, 16 * kMiB})
      for (const Dataset& data : pipelines())
        for (const int taken : {0, 1, 5, 23}) {
          const ByteCount budget = memory > 0 ? memory : data.minimum_bytes();
          DatasetIterator iterator =
              data.with_options({.memory = budget, .threads = threads}).iterate();
          Element element;
          for (int i = 0; i < taken; ++i) try {
              ASSERT_TRUE(iterator.next(element));
            } catch (const DataError&) {
              continue;  // it goes on behind the element that failed
            }
          if (taken == 5) iterator.start(1);  // a new epoch, with the old one under way
        }
}

}  // namespace
}  // namespace pl::left_early_test

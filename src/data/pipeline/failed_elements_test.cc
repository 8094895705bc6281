// Elements that fail do so in every epoch, in the same place, whatever keeps the others.
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"
#include "tests/messages.h"

namespace pl::failed_elements_test {
namespace {

using test::message_of;
using test::TempFolder;

// 0 to 9 as a stream in which 3, 4 and 9 fail; `made` counts those that were made.
Dataset failing_stream(const std::shared_ptr<int>& made = std::make_shared<int>()) {
  return Dataset::range(10)
      .filter([](const Element&) { return true; })
      .map([made](const Element& in) {
        ++*made;
        const int64_t i = number(in);
        if (i == 3 || i == 4 || i == 9) throw DataError("number " + std::to_string(i));
        return in;
      });
}

// What an epoch gives: numbers, and for each failure what it says behind "number", below 0.
std::vector<int64_t> outcome(DatasetIterator& iterator) {
  std::vector<int64_t> list;
  while (true) {
    try {
      Element e;
      if (!iterator.next(e)) return list;
      list.push_back(number(e));
    } catch (const DataError& error) {
      const std::string message = error.what();
      list.push_back(-std::stoll(message.substr(message.rfind("number ") + 7)));
    }
  }
}

const std::vector<int64_t> kOutcome{0, 1, 2, -3, -4, 5, 6, 7, 8, -9};

TEST(FailedElements, OfACachedStreamFailInEveryEpoch) {
  for (const int64_t elements : {0, 1, 2, 100}) {  // in memory, the rest in a file
    const auto made = std::make_shared<int>();
    const Dataset data = failing_stream(made).cache({.elements = elements});
    DatasetIterator iterator = data.iterate();
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      if (epoch > 0) iterator.start(epoch);
      EXPECT_EQ(outcome(iterator), kOutcome) << elements << " " << epoch;
    }
    EXPECT_EQ(*made, 10 + 1);  // and once to see the signature
  }
}

TEST(FailedElements, OfACachedStreamAreCountedInEveryEpoch) {
  const Dataset data = failing_stream().cache().ignore_errors();
  DatasetIterator iterator = data.iterate();
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    if (epoch > 0) iterator.start(epoch);
    EXPECT_EQ(numbers(iterator), (std::vector<int64_t>{0, 1, 2, 5, 6, 7, 8}));
    EXPECT_EQ(iterator.report().stages.back().skipped, 3 * static_cast<int64_t>(epoch + 1));
  }
}

TEST(FailedElements, OfACachedStreamThatWasLeftEarly) {
  const Dataset data = failing_stream().cache();
  DatasetIterator iterator = data.iterate();
  for (const int64_t first : {2, 4, 5, 8}) {
    EXPECT_EQ(iterator.advance(first), first);
    iterator.start(1);
  }
  EXPECT_EQ(outcome(iterator), kOutcome);
  // Positions count failures, with whatever the cache holds.
  iterator.start(2);
  iterator.advance(4);
  const std::string position = iterator.save();
  DatasetIterator other = data.iterate();
  other.restore(position);
  EXPECT_EQ(outcome(other), (std::vector<int64_t>{-4, 5, 6, 7, 8, -9}));
  iterator.restore(position);
  EXPECT_EQ(outcome(iterator), (std::vector<int64_t>{-4, 5, 6, 7, 8, -9}));
}

TEST(FailedElements, KeepASnapshotFromBeingWritten) {
  const TempFolder folder;
  const Dataset data = failing_stream().snapshot(folder.path());
  for (int run = 0; run < 2; ++run) {
    DatasetIterator iterator = data.iterate();
    EXPECT_EQ(outcome(iterator), kOutcome);
    iterator.start(1);
    EXPECT_EQ(outcome(iterator), kOutcome);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  // What was left out in front of it is no part of it.
  const Dataset whole = failing_stream().ignore_errors().snapshot(folder.path());
  EXPECT_EQ(numbers(whole), numbers(whole));
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
}

// A lack of memory is no failure of an element: it is asked for again, and is there.
TEST(FailedElements, OthersThanOfDataAreNotRemembered) {
  const auto broken = std::make_shared<bool>(true);
  const Dataset data = Dataset::range(6)
                           .filter([](const Element&) { return true; })
                           .map(
                               [broken](const Element& in) {
                                 if (*broken && number(in) == 4) throw DoesNotFit("no room");
                                 return in;
                               },
                               {.spec = int64_spec()})
                           .cache();
  DatasetIterator iterator = data.iterate();
  EXPECT_NE(message_of([&] { numbers(iterator); }).find("no room"), std::string::npos);
  *broken = false;
  EXPECT_EQ(numbers(iterator), (std::vector<int64_t>{4, 5}));
  iterator.start(1);
  EXPECT_EQ(numbers(iterator), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

// A snapshot that is damaged cannot be begun: an error once, and no endless row of them.
TEST(FailedElements, WhatCannotBeBegunEnds) {
  const TempFolder folder;
  const Dataset kept = Dataset::range(5).snapshot(folder.path());
  numbers(kept);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    test::write_bytes(entry.path().string(), "damaged");
  const std::vector<std::vector<int64_t>> read{
      numbers(kept.cache().ignore_errors()),
      numbers(kept.filter([](const Element&) { return true; }).cache().ignore_errors()),
      numbers(kept.repeat(3).ignore_errors()), numbers(kept.repeat().ignore_errors()),
      numbers(kept.concatenate(Dataset::range(2)).ignore_errors())};
  for (size_t i = 0; i + 1 < read.size(); ++i) EXPECT_TRUE(read[i].empty()) << i;
  EXPECT_EQ(read.back(), (std::vector<int64_t>{0, 1}));
}

TEST(FailedElements, FoldersThatCannotBeWrittenAreNotSkipped) {
  const Dataset data = Dataset::range(5).snapshot("/proc/nowhere").ignore_errors();
  EXPECT_THROW(numbers(data), Error);
}

TEST(Enumerate, EndsAtTheLargestNumber) {
  const int64_t most = INT64_MAX;
  EXPECT_EQ(numbers(Dataset::range(2).enumerate(most - 1)), (std::vector<int64_t>{most - 1, most}));
  const Dataset beyond = Dataset::range(3).enumerate(most - 1).ignore_errors();
  EXPECT_NE(message_of([&] { numbers(beyond); }).find("expected numbers below 2^63"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::failed_elements_test

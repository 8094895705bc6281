// Loops over a data set, whose elements those of from_tensor_slices are, and what is skipped.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include "base/error.h"
#include "data/pipeline/testing.h"

namespace pl::loops_test {
namespace {

using List = std::vector<int64_t>;

List loop(const Dataset& data) {
  List list;
  for (const Element& e : data) list.push_back(number(e));
  return list;
}

TEST(DatasetLoops, EachLoopIsTheNextEpoch) {
  const auto make = [](bool each = true) {
    return Dataset::range(50).shuffle({.seed = 3, .reshuffle_each_iteration = each});
  };
  const Dataset data = make(), other = make();
  const List first = loop(data), second = loop(data), third = loop(data);
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  // The same in each run of a program, and what iterate(epoch) says.
  EXPECT_EQ(loop(other), first);
  EXPECT_EQ(loop(other), second);
  EXPECT_EQ(numbers(data, 2), third);
  EXPECT_EQ(numbers(data, 0), first);
  // Copies are the same data set; what is made of it is another.
  const Dataset copy = data;
  EXPECT_EQ(loop(copy), numbers(data, 3));
  EXPECT_EQ(loop(data), numbers(data, 4));
  EXPECT_EQ(loop(data.prefetch(2)), first);
  const Dataset once = make(false);
  EXPECT_EQ(loop(once), loop(once));
}

TEST(DatasetLoops, LeftEarlyAndWithinEachOther) {
  const Dataset data = Dataset::range(20).shuffle();
  for (const Element& e : data) {
    (void)e;
    break;
  }
  EXPECT_EQ(loop(data), numbers(data, 1));
  int64_t pairs = 0;
  for (const Element& a : data)
    for (const Element& b : data) pairs += number(a) >= 0 && number(b) >= 0;
  EXPECT_EQ(pairs, 400);
}

TEST(DatasetLoops, CachesStay) {
  std::atomic<int> made = 0;
  const Dataset data = Dataset::range(10)
                           .map(
                               [&made](const Element& e) {
                                 ++made;
                                 return times(e, 3);
                               },
                               {.spec = int64_spec()})
                           .cache()
                           .shuffle({.seed = 1});
  const List first = loop(data), second = loop(data);
  EXPECT_NE(first, second);
  EXPECT_EQ(made, 10);
  // Two at once cannot share one.
  for (const Element& e : data) {
    EXPECT_EQ(loop(data).size(), 10u);
    (void)e;
    break;
  }
  EXPECT_EQ(made, 20);
  EXPECT_EQ(loop(data).size(), 10u);
  EXPECT_EQ(made, 20);
}

TEST(Dataset, ElementsAreTheirReceivers) {
  Tensor x(Meta{Dtype::float32, Shape{4, 16}});  // rows as values are aligned
  std::fill_n(x.data_as<float>(), 64, 1.0f);
  const auto scribble = [](const Element& in) {
    std::fill_n(in[0].data_as<float>(), in[0].shape().elements(), 9.0f);
    return in;
  };
  for (const Dataset& data : {Dataset::from_tensor_slices(Tensors{x}), Dataset::from_tensors({x}),
                              Dataset::from_tensor_slices(Tensors{x}).cache(),
                              Dataset::from_tensor_slices(Tensors{x}).shuffle().repeat(2)}) {
    DatasetIterator iterator = data.map(scribble, {.spec = data.element_spec()}).iterate();
    for (Element e; iterator.next(e);) EXPECT_EQ(e[0].data_as<float>()[0], 9.0f);
    iterator.start(1);
    for (const Element& e : data) std::fill_n(e[0].data_as<float>(), 16, 5.0f);
    for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(x.data_as<float>()[i], 1.0f);
    for (const Element& e : data) EXPECT_EQ(e[0].data_as<float>()[3], 1.0f);
  }
}

template <class Thrown>
Dataset throwing(const Thrown& thrown, int64_t parallel) {
  return Dataset::range(10)
      .map(
          [thrown](const Element& in) {
            if (number(in) == 4) throw thrown;
            return in;
          },
          {.num_parallel_calls = parallel})
      .ignore_errors();
}

template <class Caught, class Thrown>
void expect_passed_on(const Thrown& thrown) {
  for (const int64_t parallel : {1, 4})
    EXPECT_THROW(numbers(throwing(thrown, parallel)), Caught) << parallel;
}

TEST(Dataset, OnlyErrorsOfDataAreSkipped) {
  for (const int64_t parallel : {1, 4}) {
    EXPECT_EQ(numbers(throwing(DataError("broken"), parallel)).size(), 9u);
    EXPECT_EQ(numbers(throwing(std::runtime_error("broken"), parallel)).size(), 9u);
  }
  expect_passed_on<UserError>(UserError("wrong"));
  expect_passed_on<UserError>(std::out_of_range("vector::at"));
  expect_passed_on<UserError>(std::logic_error("never"));
  expect_passed_on<UserError>(7);
  expect_passed_on<std::bad_alloc>(std::bad_alloc());
  expect_passed_on<DoesNotFit>(DoesNotFit("large"));
  expect_passed_on<BackendError>(BackendError("no disk"));
  expect_passed_on<InternalError>(InternalError("ours"));
  try {
    numbers(throwing(std::out_of_range("vector::at"), 1));
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "[data] map: element 4: vector::at; throw DataError where it is the data's fault");
  }
}

}  // namespace
}  // namespace pl::loops_test

// snapshot: written once, read from then on; never a part of one, whatever happens on the way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>

#include "base/file.h"
#include "data/pipeline/element_file.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"
#include "tests/disk_faults.h"
#include "tests/messages.h"

namespace pl::snapshot_test {
namespace {

using test::TempFolder;
using List = std::vector<int64_t>;

// i as often as it says; counts how many elements were made.
Dataset counted(std::atomic<int>& made, int64_t n, bool stream) {
  const auto make = [&made](int64_t i) {
    ++made;
    Tensor x(Meta{Dtype::int64, Shape{i + 1}});
    std::fill_n(x.data_as<int64_t>(), i + 1, i);
    return Element{x, scalar64(i)};
  };
  const ElementSpec spec{{{"x", Dtype::int64, Shape{kUnknown}}, {"y", Dtype::int64, Shape()}}};
  if (!stream) return Dataset::from_reader(n, make, spec, {.max_bytes = 8192});
  return Dataset::from_generator(
      [make, n] {
        return [make, n, i = int64_t{0}]() mutable -> std::optional<Element> {
          if (i == n) return {};
          return make(i++);
        };
      },
      spec, {.max_bytes = 8192});
}

List labels(DatasetIterator& iterator) {
  List list;
  for (Element e; iterator.next(e);) {
    EXPECT_EQ(e[0].shape()[0], *e[1].data_as<int64_t>() + 1);
    list.push_back(*e[1].data_as<int64_t>());
  }
  return list;
}
List labels(const Dataset& data, uint64_t epoch = 0) {
  DatasetIterator iterator = data.iterate(epoch);
  return labels(iterator);
}

size_t files_in(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return 0;
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}
std::string only_file(const std::string& folder) {
  return std::filesystem::directory_iterator(folder)->path().string();
}

TEST(Snapshot, IsWrittenOnceAndReadByTheNextRun) {
  for (const bool stream : {false, true}) {
    const TempFolder folder;
    std::atomic<int> made = 0;
    const Dataset data = counted(made, 5, stream).snapshot(folder.path());
    DatasetIterator iterator = data.iterate();
    EXPECT_EQ(labels(iterator), (List{0, 1, 2, 3, 4}));
    EXPECT_EQ(made, 5);
    EXPECT_EQ(files_in(folder.path()), 1u);
    iterator.start(1);
    EXPECT_EQ(labels(iterator), (List{0, 1, 2, 3, 4}));
    EXPECT_EQ(labels(counted(made, 5, stream).snapshot(folder.path())), (List{0, 1, 2, 3, 4}));
    EXPECT_EQ(made, 5);
    DatasetIterator later = data.iterate();
    EXPECT_EQ(later.advance(3), 3);
    EXPECT_EQ(labels(later), (List{3, 4}));
    EXPECT_EQ(made, 5);
  }
}

TEST(Snapshot, ShuffledBehindItIsWrittenInThatOrderAndReadInAny) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const Dataset data = counted(made, 20, false).snapshot(folder.path()).shuffle({.seed = 3});
  const List first = labels(data);
  EXPECT_EQ(made, 20);
  EXPECT_EQ(labels(data), first);
  EXPECT_NE(labels(data, 1), first);
  EXPECT_EQ(made, 20);
  // Several at once, reading without a lock.
  const Dataset parallel =
      data.map([](const Element& in) { return in; },
               {.num_parallel_calls = 4, .spec = data.element_spec(), .max_bytes = 8192});
  EXPECT_EQ(labels(parallel), first);
}

// Over streams cardinalities are unknown before and behind such stages.
TEST(Snapshot, IsAnotherOneWithOtherOptions) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const auto kept = [&](const Dataset& data) { return labels(data.snapshot(folder.path())); };
  EXPECT_EQ(kept(counted(made, 6, true).skip(2)), (List{2, 3, 4, 5}));
  EXPECT_EQ(kept(counted(made, 6, true).skip(3)), (List{3, 4, 5}));
  EXPECT_EQ(kept(counted(made, 6, true).shard(2, 0)), (List{0, 2, 4}));
  EXPECT_EQ(kept(counted(made, 6, true).shard(2, 1)), (List{1, 3, 5}));
  EXPECT_EQ(kept(counted(made, 6, true).take(1)), (List{0}));
  EXPECT_EQ(kept(counted(made, 6, true).take(2)), (List{0, 1}));
}

TEST(Snapshot, APartIsNeverTakenForAWhole) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const Dataset data = counted(made, 5, true).snapshot(folder.path());
  {
    DatasetIterator iterator = data.iterate();
    Element e;
    for (int i = 0; i < 4; ++i) iterator.next(e);
  }
  EXPECT_EQ(files_in(folder.path()), 0u);
  EXPECT_EQ(labels(data).size(), 5u);
  const std::string path = only_file(folder.path()), whole = test::read_bytes(path);
  for (size_t length = 0; length < whole.size(); length += 7) {
    test::write_bytes(path, whole.substr(0, length));
    test::expect_data_error([&] { labels(data); }, "remove it");
  }
  // A byte of an element that has changed is found when it is read.
  for (size_t at = 16; at < whole.size(); at += 3) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    test::write_bytes(path, changed);
    EXPECT_THROW(labels(data), DataError) << at;
  }
  test::write_bytes(path, whole);
  EXPECT_EQ(labels(data).size(), 5u);
}

TEST(Snapshot, AnotherPipelineHasAnother) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const auto run = [&](const Dataset& data, const SnapshotOptions& options = {}) {
    for (const Element& e : data.snapshot(folder.path(), options)) EXPECT_EQ(e.size(), 1u);
    return files_in(folder.path());
  };
  const Dataset ten = Dataset::range(10);
  EXPECT_EQ(run(ten), 1u);
  EXPECT_EQ(run(Dataset::range(10, 20)), 2u);
  EXPECT_EQ(run(ten.take(9)), 3u);
  EXPECT_EQ(run(ten, {.key = "second"}), 4u);
  EXPECT_EQ(run(ten.map([](const Element& e) { return times(e, 2); }, {.key = "two"})), 5u);
  EXPECT_EQ(run(ten.map([](const Element& e) { return times(e, 3); }, {.key = "three"})), 6u);
  // The seed matters where something draws by it, and nowhere else.
  EXPECT_EQ(run(ten.with_options({.seed = 5})), 6u);
  EXPECT_EQ(run(ten.shuffle()), 7u);
  EXPECT_EQ(run(ten.shuffle().with_options({.seed = 5})), 8u);
  EXPECT_EQ(run(ten.shuffle({.seed = 1}).with_options({.seed = 5})), 9u);
  EXPECT_EQ(run(ten.shuffle({.seed = 1}).with_options({.seed = 6})), 9u);
  // Threads do not.
  EXPECT_EQ(run(ten.map([](const Element& e) { return times(e, 3); },
                        {.num_parallel_calls = 2, .key = "three"})),
            9u);
}

TEST(Snapshot, PositionsHoldWhetherItIsWrittenOrRead) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const Dataset data =
      counted(made, 6, true)
          .snapshot(folder.path())
          .map_random([](const Element& in, uint64_t) { return in; },
                      {.spec = counted(made, 6, true).element_spec(), .max_bytes = 8192});
  DatasetIterator writing = data.iterate();
  Element e;
  for (int i = 0; i < 2; ++i) writing.next(e);
  const std::string position = writing.save();
  EXPECT_EQ(labels(writing), (List{2, 3, 4, 5}));
  DatasetIterator reading = data.iterate();
  reading.restore(position);
  EXPECT_EQ(labels(reading), (List{2, 3, 4, 5}));
}

int full(const DiskCall& call) {
  static std::atomic<int> writes = 0;
  return call.kind == DiskCall::Kind::write && ++writes % 9 == 0 ? ENOSPC : 0;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

// A disk that fills while caching or snapshotting: an error that says so, and nothing stays.
TEST(Snapshot, AFullDiskIsAnError) {
  const TempFolder folder;
  std::atomic<int> made = 0;
  const int before = open_descriptors();
  for (const Dataset& data :
       {counted(made, 9, true).snapshot(folder.path()), counted(made, 9, true).cache()}) {
    try {
      const test::DiskFaults faults(full);
      labels(data);
      ADD_FAILURE();
    } catch (const BackendError& error) {
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("[data] "), 0u) << error.what();
    }
    EXPECT_EQ(files_in(folder.path()), 0u);
    EXPECT_EQ(open_descriptors(), before);
  }
  EXPECT_EQ(labels(counted(made, 9, true).snapshot(folder.path())).size(), 9u);
}

// The limit of a file's size would be a signal that ends the process.
TEST(Snapshot, ALimitOfFileSizesIsAnError) {
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{300, before.rlim_max};
  std::atomic<int> made = 0;
  for (const Dataset& data :
       {counted(made, 30, true).snapshot(folder.path()), counted(made, 30, true).cache()}) {
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
      labels(data);
    } catch (const BackendError& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
    EXPECT_EQ(files_in(folder.path()), 0u);
  }
}

TEST(Snapshot, AFolderThatCannotBeWrittenIsNamed) {
  std::atomic<int> made = 0;
  const std::string message =
      test::message_of([&] { labels(counted(made, 3, true).snapshot("/proc/none/here")); });
  EXPECT_NE(message.find("/proc/none"), std::string::npos) << message;
  EXPECT_THROW(Dataset::range(3).snapshot(""), UserError);
}

TEST(Cache, TakesElementsOrBytes) {
  const Dataset thousand = Dataset::range(1000);
  const Bytes plain = thousand.minimum_bytes();
  EXPECT_EQ(thousand.cache({.elements = 600}).minimum_bytes(), plain + 4096 + 8192 + 4096);
  EXPECT_EQ(thousand.cache({.bytes = 4096}).minimum_bytes(), plain + 4096 + 4096);
  DatasetIterator iterator = thousand.cache({.elements = 600}).iterate();
  EXPECT_EQ(numbers(iterator), numbers(thousand));
  iterator.start(1);
  EXPECT_EQ(numbers(iterator), numbers(thousand));
}

}  // namespace
}  // namespace pl::snapshot_test

// Memory of eager values: what a limit means, what is wasted, and the pattern on which allocators
// that cut one region into pieces fail with half of it free.
#include "tensor/value_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "tensor/tensor.h"

namespace pl::value_memory_test {
namespace {

constexpr Bytes kPage = 4 * kKiB;

// A caching allocator of the usual kind: one region, best fit, pieces cut off and joined again.
class BestFitRegion {
 public:
  explicit BestFitRegion(Bytes bytes) { free_[0] = bytes; }
  std::optional<Bytes> take(Bytes bytes) {
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (at->second >= bytes && (best == free_.end() || at->second < best->second)) best = at;
    if (best == free_.end()) return std::nullopt;
    const auto [at, size] = *best;
    free_.erase(best);
    if (size > bytes) free_[at + bytes] = size - bytes;
    return at;
  }
  void give(Bytes at, Bytes bytes) {
    auto next = free_.upper_bound(at);
    if (next != free_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin())
      if (auto before = std::prev(next); before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    free_[at] = bytes;
  }
  Bytes free_bytes() const {
    Bytes sum = 0;
    for (const auto& [at, bytes] : free_) sum += bytes;
    return sum;
  }

 private:
  std::map<Bytes, Bytes> free_;
};

TEST(ValueMemory, ServesWhatIsFreeWhereACachingAllocatorFails) {
  constexpr Bytes kBudget = 16 * kMiB, kPiece = 256 * kKiB;
  constexpr int kPieces = kBudget / kPiece;
  // Every second piece dies: half of the memory is free, in holes of one piece.
  BestFitRegion region(kBudget);
  std::vector<Bytes> at;
  for (int i = 0; i < kPieces; ++i) at.push_back(*region.take(kPiece));
  for (int i = 0; i < kPieces; i += 2) region.give(at[static_cast<size_t>(i)], kPiece);
  EXPECT_EQ(region.free_bytes(), kBudget / 2);
  EXPECT_FALSE(region.take(2 * kPiece)) << "two pieces do not fit any hole";

  ValueMemory memory(kBudget);
  std::vector<ValueMemory::Block> blocks;
  for (int i = 0; i < kPieces; ++i) {
    blocks.push_back(memory.take(kPiece));
    std::memset(blocks.back().data, i, kPiece);
  }
  EXPECT_THROW(memory.take(kPage), DoesNotFit);
  for (int i = 0; i < kPieces; i += 2) memory.give(blocks[static_cast<size_t>(i)], kPiece);
  const ValueMemory::Block half = memory.take(kBudget / 2);  // all that is free, as one value
  std::memset(half.data, 7, kBudget / 2);
  EXPECT_EQ(memory.figures().resident(), kBudget);
  for (int i = 1; i < kPieces; i += 2) {
    const char* piece = static_cast<const char*>(blocks[static_cast<size_t>(i)].data);
    EXPECT_EQ(piece[kPiece - 1], i);
    memory.give(blocks[static_cast<size_t>(i)], kPiece);
  }
  memory.give(half, kBudget / 2);
  EXPECT_EQ(memory.figures().used, 0);
}

TEST(ValueMemory, WastesAtMostAPageForEachValue) {
  ValueMemory memory;
  std::mt19937 random(7);
  struct Living {
    ValueMemory::Block block;
    Bytes bytes;
  };
  std::vector<Living> living;
  Bytes asked = 0;
  for (int i = 0; i < 4000; ++i) {
    if (living.size() > 200 || (!living.empty() && random() % 3 == 0)) {
      const size_t victim = random() % living.size();
      memory.give(living[victim].block, living[victim].bytes);
      asked -= living[victim].bytes;
      living[victim] = living.back();
      living.pop_back();
    } else {
      const Bytes bytes = 64 * (1 + static_cast<Bytes>(random() % (random() % 2 ? 32 : 400)));
      living.push_back({memory.take(bytes), bytes});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(living.back().block.data) % 64, 0u);
      std::memset(living.back().block.data, 1, static_cast<size_t>(bytes));
      asked += bytes;
    }
    ASSERT_LE(memory.figures().used, asked + kPage * static_cast<Bytes>(living.size()));
    ASSERT_EQ(memory.figures().values, static_cast<int64_t>(living.size()));
  }
  for (const Living& each : living) memory.give(each.block, each.bytes);
  EXPECT_EQ(memory.figures().used, 0);
  memory.trim();
  EXPECT_EQ(memory.figures().resident(), 0);
}

TEST(ValueMemory, SmallValuesShareAPageAndDoNotOverlap) {
  ValueMemory memory(kPage);
  std::vector<ValueMemory::Block> cells;
  for (int i = 0; i < 64; ++i) {
    cells.push_back(memory.take(64));
    std::memset(cells.back().data, i, 64);
  }
  EXPECT_EQ(memory.figures().used, kPage);
  EXPECT_THROW(memory.take(64), DoesNotFit);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(static_cast<const char*>(cells[static_cast<size_t>(i)].data)[63], i);
  memory.give(cells[11], 64);
  EXPECT_EQ(memory.take(64).data, cells[11].data);
  for (const ValueMemory::Block& cell : cells) memory.give(cell, 64);
  EXPECT_EQ(memory.figures().used, 0);
}

TEST(ValueMemory, TheRefusalSaysWhatIsHeldAndLosesNothing) {
  const auto memory = std::make_shared<ValueMemory>(kMiB);
  const MemoryScope scope(memory);
  const Tensor held({Dtype::float32, {160 * 1024}});
  held.data_as<float>()[0] = 3;
  try {
    const Tensor more({Dtype::float32, {160 * 1024}});
    ADD_FAILURE() << "1.25 MiB fit into one";
  } catch (const DoesNotFit& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "[runtime] expected 640.0 KiB for a value within memory = 1.00 MiB, of which 640.0 KiB "
        "are held by 1 values and their kernels; let go of tensors or a tape (reset()), or "
        "raise memory");
  }
  EXPECT_EQ(held.data_as<float>()[0], 3);
  EXPECT_EQ(memory->figures().values, 1);
  const Tensor fits({Dtype::float32, {96 * 1024}});
  EXPECT_EQ(memory->figures().used, kMiB);
}

TEST(ValueMemory, ValuesOutliveTheScopeAndDieOnOtherThreads) {
  const auto memory = std::make_shared<ValueMemory>(64 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory] {
      std::vector<Tensor> mine;
      {
        const MemoryScope scope(memory);
        for (Dim i = 0; i < 200; ++i) mine.emplace_back(Meta{Dtype::float32, {1 + i * 37}});
      }
      std::thread([list = std::move(mine)]() mutable { list.clear(); }).join();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->figures().used, 0);
  EXPECT_EQ(memory->figures().values, 0);
}

TEST(Buffer, DetachedBytesKeepWhatTheyWere) {
  float place[2] = {1, 2};
  const auto keeper = std::make_shared<int>(0);
  const Tensor view({Dtype::float32, {2}}, std::make_shared<Buffer>(place, 8, keeper));
  EXPECT_EQ(view.data(), place);
  view.buffer()->detach();
  place[0] = 9;
  EXPECT_EQ(view.data_as<float>()[0], 1);
  EXPECT_EQ(keeper.use_count(), 1);
}

}  // namespace
}  // namespace pl::value_memory_test

// ValueMemory: where eager values lie, under a hard limit. A value of a page or more has a mapping
// of its own, so no hole between others is ever too small for it: as long as the bytes in use and
// the bytes asked for are within the limit, it is served. Freed mappings are kept for values of the
// same size and unmapped as soon as their pages are wanted elsewhere. Smaller values share pages
// with others of their size. Either way a value wastes at most one page. A device's memory is kept
// the same way, with larger pages.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "tensor/device_space.h"

namespace pl {

struct MemoryFigures {
  std::optional<Bytes> limit;
  Bytes used = 0;      // pages of living values, and what else was charged
  Bytes peak = 0;      // the most of that so far
  Bytes kept = 0;      // pages of dead values, kept for the next ones
  int64_t values = 0;  // alive
  Bytes resident() const { return used + kept; }  // never above the limit
};

// For several threads: a value may die on another thread than it was made on.
class ValueMemory {
 public:
  // `space`: whose pages they are; null: the host's.
  explicit ValueMemory(std::optional<Bytes> limit = {},
                       std::shared_ptr<DeviceSpace> space = nullptr);
  ~ValueMemory();
  ValueMemory(const ValueMemory&) = delete;
  ValueMemory& operator=(const ValueMemory&) = delete;

  struct Slab;
  struct Block {
    void* data = nullptr;  // aligned to a cache line
    Slab* slab = nullptr;  // of a small one
  };
  // Throws DoesNotFit, with nothing changed, when living values and this one exceed the limit.
  Block take(Bytes bytes);
  void give(const Block& block, Bytes bytes) noexcept;
  void expect(Bytes bytes) const;  // throws as take(), and takes nothing

  // Bytes that lie elsewhere and count as used, such as prepared kernels. False: no room.
  bool charge(Bytes bytes);
  void discharge(Bytes bytes) noexcept;

  void trim() noexcept;  // gives all kept pages back to the system
  MemoryFigures figures() const;
  Bytes room() const;  // what the limit leaves; without one, the largest number
  const std::shared_ptr<DeviceSpace>& space() const { return space_; }

 private:
  size_t class_of(Bytes bytes) const;
  Bytes cell_of(size_t size_class) const { return smallest_ << size_class; }
  void* map(Bytes bytes);
  void unmap(void* data, Bytes bytes) noexcept;
  void* take_pages(Bytes bytes);
  void give_pages(void* data, Bytes bytes) noexcept;
  bool make_room(Bytes bytes) noexcept;
  void unlink(Slab& slab) noexcept;
  void link(Slab& slab) noexcept;
  [[noreturn]] void refuse(Bytes bytes, bool system) const;

  static constexpr size_t kClasses = 16;  // of cells: 64, 128, ... bytes, up to half a page
  mutable std::mutex mutex_;
  const std::optional<Bytes> limit_;
  const std::shared_ptr<DeviceSpace> space_;
  const Bytes page_, smallest_, keeps_;  // keeps_: of dead values' pages, at most
  Bytes used_ = 0, peak_ = 0, kept_ = 0;
  int64_t values_ = 0;
  std::map<Bytes, std::vector<void*>> dead_;  // mappings by size
  std::array<Slab*, kClasses> open_{};        // slabs with a free cell, as a list for each size
};

// Puts a memory in scope: values made on this thread lie in it. Without one they lie on the heap.
class MemoryScope {
 public:
  explicit MemoryScope(std::shared_ptr<ValueMemory> memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  static const std::shared_ptr<ValueMemory>& current();  // null when there is none

 private:
  std::shared_ptr<ValueMemory> previous_;
};

}  // namespace pl

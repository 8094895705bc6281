#include "tensor/value_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kSmallest = 64;
constexpr Bytes kKeptWithoutLimit = 64 * kMiB, kKeptOnDevice = kGiB;
constexpr size_t kSizes = 32;  // of mappings that are remembered

thread_local std::shared_ptr<ValueMemory> current_memory;

Bytes page_of(const DeviceSpace* space) {
  return space ? space->page() : static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

}  // namespace

// One page of equal cells. Free ones form a list: through themselves, or beside them where the host
// does not reach them.
struct ValueMemory::Slab {
  char* page;
  size_t size_class;
  int64_t cells, live = 0, fresh = 0;  // cells behind the first `fresh` were never handed out
  void* free = nullptr;
  Slab *before = nullptr, *next = nullptr;
  std::vector<void*> beside = {};
  bool full() const { return !free && beside.empty() && fresh == cells; }

  void* take(Bytes cell) {
    ++live;
    void* data = free;
    if (data) {
      free = *static_cast<void**>(data);
    } else if (!beside.empty()) {
      data = beside.back();
      beside.pop_back();
    } else {
      data = page + cell * fresh++;
    }
    return data;
  }
  void give(void* data, bool apart) noexcept {
    --live;
    if (apart) {
      beside.push_back(data);  // within what it has set aside
    } else {
      *static_cast<void**>(data) = free;
      free = data;
    }
  }
};

ValueMemory::ValueMemory(std::optional<Bytes> limit, std::shared_ptr<DeviceSpace> space)
    : limit_(limit),
      space_(std::move(space)),
      page_(page_of(space_.get())),
      smallest_(space_ ? space_->alignment() : kSmallest),
      keeps_(limit.value_or(space_ ? kKeptOnDevice : kKeptWithoutLimit)) {
  if (limit_ && *limit_ < page_)
    throw UserError("[runtime] memory: expected at least a page of " + format_bytes(page_) +
                    ", received " + format_bytes(*limit_));
}

ValueMemory::~ValueMemory() { trim(); }

size_t ValueMemory::class_of(Bytes bytes) const {
  const auto cell = std::bit_ceil(static_cast<uint64_t>(std::max(bytes, smallest_)));
  return static_cast<size_t>(std::bit_width(cell) -
                             std::bit_width(static_cast<uint64_t>(smallest_)));
}

void* ValueMemory::map(Bytes bytes) {
  if (space_) return space_->map(bytes);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void ValueMemory::unmap(void* data, Bytes bytes) noexcept {
  if (space_)
    space_->unmap(data, bytes);
  else
    munmap(data, static_cast<size_t>(bytes));
}

void ValueMemory::expect(Bytes bytes) const {
  if (!limit_) return;
  const std::lock_guard lock(mutex_);
  if (bytes > *limit_ - used_) refuse(bytes, false);
}

ValueMemory::Block ValueMemory::take(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > page_ / 2) {
    void* data = take_pages(align_up(bytes, page_));
    ++values_;
    return {data, nullptr};
  }
  const size_t size_class = class_of(bytes);
  const Bytes cell = cell_of(size_class);
  Slab* slab = open_[size_class];
  if (slab && slab->live == 0) {  // a kept one
    kept_ -= page_;
    used_ += page_;
    peak_ = std::max(peak_, used_);
  } else if (!slab) {
    auto fresh = std::make_unique<Slab>(Slab{nullptr, size_class, page_ / cell});
    if (space_) fresh->beside.reserve(static_cast<size_t>(fresh->cells));
    fresh->page = static_cast<char*>(take_pages(page_));
    slab = fresh.release();
    link(*slab);
  }
  void* data = slab->take(cell);
  if (slab->full()) unlink(*slab);
  ++values_;
  return {data, slab};
}

void ValueMemory::give(const Block& block, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  --values_;
  if (!block.slab) return give_pages(block.data, align_up(bytes, page_));
  Slab& slab = *block.slab;
  if (slab.full()) link(slab);
  slab.give(block.data, space_ != nullptr);
  if (slab.live > 0) return;
  // Where values come one at a time, the last page of their size serves the next one.
  const bool only = open_[slab.size_class] == &slab && !slab.next;
  if (only && kept_ + page_ <= keeps_) {
    used_ -= page_;
    kept_ += page_;
    return;
  }
  unlink(slab);
  give_pages(slab.page, page_);
  delete &slab;
}

void ValueMemory::link(Slab& slab) noexcept {
  Slab*& first = open_[slab.size_class];
  slab.before = nullptr;
  slab.next = first;
  if (first) first->before = &slab;
  first = &slab;
}

void ValueMemory::unlink(Slab& slab) noexcept {
  if (slab.before)
    slab.before->next = slab.next;
  else
    open_[slab.size_class] = slab.next;
  if (slab.next) slab.next->before = slab.before;
}

void* ValueMemory::take_pages(Bytes bytes) {
  void* data = nullptr;
  if (const auto at = dead_.find(bytes); at != dead_.end() && !at->second.empty()) {
    data = at->second.back();
    at->second.pop_back();
    // A few sizes are remembered, so that values that come one at a time cost no allocations.
    if (at->second.empty() && dead_.size() > kSizes) dead_.erase(at);
    kept_ -= bytes;
  } else {
    if (!make_room(bytes)) refuse(bytes, false);
    data = map(bytes);
    if (!data) {
      make_room(std::numeric_limits<Bytes>::max() / 2);  // what is kept may be what is missing
      data = map(bytes);
    }
    if (!data) refuse(bytes, true);
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return data;
}

void ValueMemory::give_pages(void* data, Bytes bytes) noexcept {
  used_ -= bytes;
  if (kept_ + bytes > keeps_) {
    unmap(data, bytes);
    return;
  }
  try {
    dead_[bytes].push_back(data);
    kept_ += bytes;
  } catch (const std::bad_alloc&) {
    unmap(data, bytes);
  }
}

// Unmaps kept pages, the largest first, until `bytes` more are within the limit.
bool ValueMemory::make_room(Bytes bytes) noexcept {
  const Bytes limit = limit_.value_or(std::numeric_limits<Bytes>::max() / 2);
  while (!dead_.empty() && bytes > limit - used_ - kept_) {
    auto& [size, list] = *dead_.rbegin();
    if (list.empty()) {
      dead_.erase(std::prev(dead_.end()));
      continue;
    }
    unmap(list.back(), size);
    kept_ -= size;
    list.pop_back();
  }
  for (Slab* slab : open_)
    while (slab && bytes > limit - used_ - kept_) {
      Slab* const next = slab->next;
      if (slab->live == 0) {
        unlink(*slab);
        unmap(slab->page, page_);
        kept_ -= page_;
        delete slab;
      }
      slab = next;
    }
  return bytes <= limit - used_ - kept_;
}

void ValueMemory::refuse(Bytes bytes, bool system) const {
  const std::string held =
      format_bytes(used_) + " are held by " + std::to_string(values_) + " values and their kernels";
  const std::string option = space_ ? "device_memory" : "memory";
  if (system) {
    std::string who = "the system gave none";
    if (space_) {
      const std::string room = space_->room();
      who = space_->name() + " gave none" + (room.empty() ? "" : ": " + room);
    }
    throw DoesNotFit("[runtime] expected " + format_bytes(bytes) + " for a value, " + who + "; " +
                     held + "; let go of tensors or a tape (reset())");
  }
  throw DoesNotFit("[runtime] expected " + format_bytes(bytes) + " for a value within " + option +
                   " = " + format_bytes(*limit_) + ", of which " + held +
                   "; let go of tensors or a tape (reset()), or raise " + option);
}

bool ValueMemory::charge(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (!make_room(bytes)) return false;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return true;
}

void ValueMemory::discharge(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

void ValueMemory::trim() noexcept {
  const std::lock_guard lock(mutex_);
  make_room(std::numeric_limits<Bytes>::max() / 2);
  dead_.clear();
}

MemoryFigures ValueMemory::figures() const {
  const std::lock_guard lock(mutex_);
  return {limit_, used_, peak_, kept_, values_};
}

Bytes ValueMemory::room() const {
  const std::lock_guard lock(mutex_);
  return limit_ ? *limit_ - used_ : std::numeric_limits<Bytes>::max();
}

MemoryScope::MemoryScope(std::shared_ptr<ValueMemory> memory)
    : previous_(std::exchange(current_memory, std::move(memory))) {}
MemoryScope::~MemoryScope() { current_memory = std::move(previous_); }
const std::shared_ptr<ValueMemory>& MemoryScope::current() { return current_memory; }

}  // namespace pl

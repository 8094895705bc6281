// Counts heap allocations by calling module: the promise that a steady step allocates nothing of
// ours is measured, not assumed. malloc and operator new are interposed for the whole process; the
// return address tells whether our program asked or a library did.
#include <link.h>

#include <cerrno>
#include <cstdlib>
#include <new>

#include "base/heap_count.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

// Bounds of our program's own code, which the linker provides.
extern "C" char __executable_start;
extern "C" char etext;

void count(void* caller) {
  pl::HeapCounters& counters = pl::heap_counters();
  if (!counters.counting.load(std::memory_order_relaxed))
    counters.counting.store(true, std::memory_order_relaxed);
  const char* address = static_cast<const char*>(caller);
  const bool ours = address >= &__executable_start && address < &etext;
  (ours ? counters.ours : counters.library).fetch_add(1, std::memory_order_relaxed);
}

void* new_or_throw(size_t size, void* caller) {
  count(caller);
  void* memory = __libc_malloc(size > 0 ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void* new_aligned(size_t size, std::align_val_t alignment, void* caller) {
  count(caller);
  void* memory = __libc_memalign(static_cast<size_t>(alignment), size > 0 ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" {

void* malloc(size_t size) {
  count(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  count(__builtin_return_address(0));
  return __libc_calloc(n, size);
}
void* realloc(void* old, size_t size) {
  count(__builtin_return_address(0));
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count(__builtin_return_address(0));
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

}  // extern "C"

void* operator new(size_t size) { return new_or_throw(size, __builtin_return_address(0)); }
void* operator new[](size_t size) { return new_or_throw(size, __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return new_aligned(size, alignment, __builtin_return_address(0));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return new_aligned(size, alignment, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

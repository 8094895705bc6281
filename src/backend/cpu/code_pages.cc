#include "backend/cpu/code_pages.h"

#include <fcntl.h>
#include <link.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

namespace pl {
namespace {

// The pages that a segment lies on.
struct Pages {
  uintptr_t begin, bytes;
};
Pages pages_of(const dl_phdr_info& object, const ElfW(Phdr) & segment) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t at = object.dlpi_addr + segment.p_vaddr, begin = at & ~(page - 1);
  return {begin, ((at + segment.p_memsz + page - 1) & ~(page - 1)) - begin};
}

// Only segments that nobody ever writes: a private copy (relocations) would be lost. Objects with
// text relocations have such copies in their code and are left alone.
int release_object(dl_phdr_info* object, size_t, void*) {
  for (int i = 0; i < object->dlpi_phnum; ++i)
    if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      const auto* entry =
          reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
      for (; entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == DT_TEXTREL ||
            (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL)))
          return 0;
    }
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) || !(segment.p_flags & PF_X))
      continue;
    const Pages pages = pages_of(*object, segment);
    madvise(reinterpret_cast<void*>(pages.begin), pages.bytes, MADV_DONTNEED);  // best effort
  }
  return 0;
}

// Older headers do not know them.
constexpr uint64_t kWpUnpopulated = 1 << 13, kWpAsync = 1 << 15;  // UFFD_FEATURE_...
constexpr int kUserModeOnly = 1;                                  // UFFD_USER_MODE_ONLY

// Ranges that are watched for writes are mapped page by page, and nobody writes to these. Those
// that are registered already answer EBUSY.
int hold_object(dl_phdr_info* object, size_t, void* to) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W)) continue;
    const Pages pages = pages_of(*object, segment);
    uffdio_register range{};
    range.range = {pages.begin, pages.bytes};
    range.mode = UFFDIO_REGISTER_MODE_WP;
    auto& [file, count] = *static_cast<std::pair<int, int>*>(to);
    if (ioctl(file, UFFDIO_REGISTER, &range) == 0) ++count;
  }
  return 0;
}

}  // namespace

bool hold_code_by_page() {
  const int file = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
  if (file < 0) return false;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kWpUnpopulated | kWpAsync;
  const bool can = ioctl(file, UFFDIO_API, &api) == 0;
  std::pair<int, int> held{file, 0};
  if (can) dl_iterate_phdr(hold_object, &held);
  if (held.second == 0) {
    close(file);
    return can;
  }
  dl_iterate_phdr(release_object, nullptr);  // what came with neighbours until now
  return true;                               // the file stays open while the process lives
}

void release_code_pages() {
  dl_iterate_phdr(release_object, nullptr);
  malloc_trim(0);
}

void trim_code_pages(Bytes most) {
  // Fields of statm, in pages: size, resident, shared (the resident pages of files), ...
  long long size = 0, resident = 0, shared = 0;
  char text[128] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const bool ok = read(file, text, sizeof text - 1) > 0 &&
                  std::sscanf(text, "%lld %lld %lld", &size, &resident, &shared) == 3;
  close(file);
  if (ok && shared * sysconf(_SC_PAGESIZE) > most) dl_iterate_phdr(release_object, nullptr);
}

}  // namespace pl

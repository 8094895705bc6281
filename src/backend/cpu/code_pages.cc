#include "backend/cpu/code_pages.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace pl {
namespace {

// Only segments that nobody ever writes: a private copy (relocations) would be lost. Objects with
// text relocations have such copies in their code and are left alone.
int release_object(dl_phdr_info* object, size_t, void*) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
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
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const uintptr_t end =
        (object->dlpi_addr + segment.p_vaddr + segment.p_memsz + page - 1) & ~(page - 1);
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // best effort
  }
  return 0;
}

}  // namespace

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

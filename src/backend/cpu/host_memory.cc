#include "backend/cpu/host_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kHugePage = 2 * kMiB;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older C libraries do not name

// The value in kB behind "key:" in a /proc file, in bytes; 0 when absent.
Bytes proc_field(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t digits = line.find_first_of("0123456789");
    int64_t kib = 0;
    if (digits != std::string::npos)
      std::from_chars(line.data() + digits, line.data() + line.size(), kib);
    return kib * kKiB;
  }
  return 0;
}

std::optional<Bytes> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // missing, or "max"
}

// Of a group's usage: pages of files that nobody maps. The system takes them back when a process of
// the group wants memory, so that reading a data set does not count as having used up the limit.
// `prefix`: of the names that count groups below as well.
Bytes cached_bytes(const std::string& folder, const std::string& prefix) {
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  Bytes value = 0, cached = 0;
  while (file >> name >> value) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") cached += value;
    if (name == (prefix.empty() ? "file_mapped" : prefix + "mapped_file")) cached -= value;
  }
  return std::max<Bytes>(cached, 0);
}

// Room under every memory limit from this process's group up to the root, cgroup v2 or v1.
std::optional<Bytes> cgroup_room() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  std::optional<Bytes> least;
  auto walk = [&](std::string root, std::string path, const char* limit, const char* usage,
                  const char* prefix) {
    while (true) {
      const std::string folder = root + path;
      const auto max = read_number(folder + "/" + limit), now = read_number(folder + "/" + usage);
      if (max && now && *max < (int64_t{1} << 60))
        least = std::min(least.value_or(*max),
                         std::clamp<Bytes>(*max - *now + cached_bytes(folder, prefix), 0, *max));
      if (path.empty() || path == "/") break;
      path.erase(path.find_last_of('/'));
    }
  };
  while (std::getline(groups, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) walk("/sys/fs/cgroup", path, "memory.max", "memory.current", "");
    if (controllers.find("memory") != std::string::npos)
      walk("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
           "total_");
  }
  return least;
}

std::optional<Bytes> rlimit_room() {
  std::optional<Bytes> least;
  auto consider = [&](int resource, const char* used) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const auto cap = static_cast<Bytes>(
        std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max() / 2));
    const Bytes room = std::max<Bytes>(cap - proc_field("/proc/self/status", used), 0);
    least = std::min(least.value_or(room), room);
  };
  consider(RLIMIT_AS, "VmSize:");
  consider(RLIMIT_DATA, "VmData:");
  return least;
}

}  // namespace

Bytes HostRoom::least() const {
  return std::min({available, cgroup.value_or(available), address_space.value_or(available)});
}

Bytes HostRoom::for_device(std::optional<Bytes> given) const {
  const Bytes room = least();
  return std::min(given.value_or(room / 2), room);
}

std::string HostRoom::tightest() const {
  if (address_space && *address_space == least()) return "the process's resource limit (ulimit)";
  if (cgroup && *cgroup == least()) return "the control group's memory limit";
  return "the machine's available memory";
}

HostRoom host_room() {
  return {proc_field("/proc/meminfo", "MemAvailable:"), cgroup_room(), rlimit_room()};
}
Bytes process_resident() { return proc_field("/proc/self/status", "VmRSS:"); }
Bytes process_peak() { return proc_field("/proc/self/status", "VmHWM:"); }
Bytes total_memory() { return proc_field("/proc/meminfo", "MemTotal:"); }

Reservation::Reservation(Bytes bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  // The mapping is longer than the reservation so that it can start on a huge page; the surplus is
  // address space that no page ever backs.
  mapped_ = static_cast<size_t>(align_up(bytes, page) + kHugePage);
  void* mapping =
      mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping != MAP_FAILED) {
    mapping_ = mapping;
    data_ = reinterpret_cast<char*>(align_up(reinterpret_cast<int64_t>(mapping), kHugePage));
    if (mprotect(data_, static_cast<size_t>(align_up(bytes, page)), PROT_READ | PROT_WRITE) == 0) {
      madvise(data_, static_cast<size_t>(align_up(bytes, page)),
              MADV_HUGEPAGE);  // a hint: failure is fine
      return;
    }
    munmap(mapping_, mapped_);
    mapping_ = nullptr;
  }
  throw DoesNotFit("[reserve] the system refused " + format_bytes(bytes) + ": " +
                   std::strerror(errno) + "; lower --batch or --memory, or raise the limit");
}

Reservation::~Reservation() {
  if (mapping_) munmap(mapping_, mapped_);
}

void Reservation::swap(Reservation& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
}

void Reservation::prefault(Bytes first) {
  check(first <= bytes_, "more than was reserved");
  if (first == 0) return;
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  const auto length = static_cast<size_t>(align_up(first, page));
  if (madvise(data_, length, kPopulateWrite) == 0) return;
  if (errno == ENOMEM || errno == EHWPOISON)
    throw DoesNotFit("[reserve] the system could not back " + format_bytes(first) +
                     " with memory; lower --batch or --memory");
  // Older kernels: touch every page, leaving what it holds.
  volatile char* data = data_;
  for (size_t at = 0; at < length; at += static_cast<size_t>(page)) data[at] = data[at];
}

void Reservation::discard(Bytes from) {
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  from = align_up(from, page);
  const Bytes end = align_up(bytes_, page);
  if (from < end) madvise(data_ + from, static_cast<size_t>(end - from), MADV_DONTNEED);
}

}  // namespace pl

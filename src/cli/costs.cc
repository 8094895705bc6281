#include "cli/costs.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <system_error>

#include "backend/cpu/code_pages.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/host_memory.h"
#include "base/cache_folder.h"
#include "base/disk.h"
#include "base/error.h"
#include "cli/commands.h"
#include "execute/calibrate.h"

namespace pl {
namespace {

constexpr Bytes kProcess = 24 * kMiB;   // of the calibrating process besides its buffers
constexpr Bytes kLeastRoom = 8 * kMiB;  // below this it could not say anything of use
constexpr auto kPatience = std::chrono::seconds(3);

// Without exceptions: the unwind tables' pages would be on nobody's bill.
bool writable(const std::string& folder) {
  return disk::make_folders(folder) == 0 && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

// Reads until the other end is closed by all who hold it, or for so long.
void wait_for_end(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return;
    char ignored[256];
    if (ready > 0 && ::read(fd, ignored, sizeof ignored) <= 0) return;
  }
}

// Runs `plimsoll calibrate` to its end. Its stdout is a pipe whose other end tells when that is;
// what stands behind it is not read.
void run_calibration(int threads, Bytes room) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string words[] = {"plimsoll", "calibrate",         "--threads", std::to_string(threads),
                         "--room",   std::to_string(room)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (!failed) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    wait_for_end(ends[0]);
  }
  ::close(ends[0]);
}

}  // namespace

CostTable load_costs(const Backend& backend, std::optional<Bytes> budget) {
  if (!backend.on_host()) return machine_costs(backend);  // what steps teach, and nominal rates
  release_code_pages();                                   // those of the program's start make room
  CostTable table = machine_costs(backend);
  if (table.calibrated() || nominal_costs_wanted() || !writable(cache_folder())) return table;
  const Bytes most =
      std::min(host_room().least(), budget.value_or(std::numeric_limits<Bytes>::max()));
  const Bytes room = std::min(most / 2 - kProcess, calibration_bytes());
  if (room < kLeastRoom) return table;
  run_calibration(backend.threads(), room);
  return machine_costs(backend);
}

void learn_costs(const Backend& backend, const Session& session, const LoopResult& result) {
  if (result.kernel_ms.empty() || nominal_costs_wanted()) return;
  if (!writable(cache_folder())) return;
  release_code_pages();  // training is over: its pages make room for those of what follows
  // Read anew: another run may have learned since this one began.
  CostTable table = machine_costs(backend);
  const Prepared& prepared = session.plan().prepared[0];
  if (!learn_steps(table, prepared.graph, prepared.plan, prepared.facts, result.kernel_ms,
                   backend.threads()))
    return;
  try {
    table.save();
  } catch (const Error&) {
    // A cache that cannot be written costs the next run its better guess, and nothing else.
  }
}

int run_calibrate(const CalibrateOptions& options) {
  // The peak of a process that is waited for counts as its parent's own: whoever waits for us sees
  // the small half, and the other one's end by the closed pipe.
  if (::fork() != 0) ::_exit(0);
  CpuBackend backend(options.threads);
  CostTable table = CostTable::load(cache_folder(), backend);
  const Rates rates = calibrate(backend, options.room);
  if (!plausible(rates)) return 0;  // the next run tries again
  table.calibrate(rates);
  table.save();
  return 0;
}

}  // namespace pl

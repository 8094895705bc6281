// Input pipelines that are killed in the middle of an epoch and go on with exactly the next
// element. scripts/kill-test --stream does the same at random moments, many times.
#include <signal.h>

#include <filesystem>

#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::stream_kill_test {
namespace {

using ::pl::test::read_bytes;

constexpr int64_t kRecord = 40;

pid_t start(const std::string& folder, const std::string& kind) {
  const std::string program = ::pl::test::tool("killable_stream");
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int out = ::open((folder + "/out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) ::_exit(126);
  ::execl(program.c_str(), program.c_str(), folder.c_str(), "2", kind.c_str(), nullptr);
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int64_t records(const std::string& folder) {
  std::error_code error;
  const auto size = std::filesystem::file_size(folder + "/records", error);
  return error ? 0 : static_cast<int64_t>(size) / kRecord;
}

// Until so many elements were delivered, or the child has ended.
void wait_for_records(const std::string& folder, int64_t count) {
  for (int i = 0; i < 20'000 && records(folder) < count; ++i) ::usleep(500);
}

void kill_and_go_on(const std::string& kind) {
  const TempFolder calm, folder;
  EXPECT_EQ(wait_for(start(calm.path(), kind)), 0) << read_bytes(calm / "out");
  const int64_t all = records(calm.path());
  // In the first epoch, twice, and in the second, when the cache has been whole and is lost.
  for (const int64_t after : {all / 7, all / 3, 2 * all / 3}) {
    const pid_t child = start(folder.path(), kind);
    wait_for_records(folder.path(), after);
    ::kill(child, SIGKILL);
    EXPECT_EQ(wait_for(child), -SIGKILL) << kind << " " << read_bytes(folder / "out");
    EXPECT_LT(records(folder.path()), all);
  }
  // A record that was torn is no record.
  std::filesystem::resize_file(folder / "records", records(folder.path()) * kRecord - 13);
  EXPECT_EQ(wait_for(start(folder.path(), kind)), 0) << read_bytes(folder / "out");
  EXPECT_EQ(read_bytes(folder / "log.csv"), read_bytes(calm / "log.csv")) << kind;
}

TEST(KilledStream, GoesOnWithACacheInMemory) { kill_and_go_on("ram"); }
TEST(KilledStream, GoesOnWithACacheInAFile) { kill_and_go_on("spill"); }
// One that was half written is no snapshot; once it is whole the elements come from it.
TEST(KilledStream, GoesOnWithASnapshot) { kill_and_go_on("snapshot"); }
TEST(KilledStream, GoesOnWithAGeneratorAndABuffer) { kill_and_go_on("stream"); }

}  // namespace
}  // namespace pl::test::stream_kill_test

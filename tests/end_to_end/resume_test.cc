// Runs of the command that are killed, interrupted and resumed, seen from outside.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::resume_test {
namespace {

using ::pl::test::read_bytes;

// Starts plimsoll; the caller waits for it.
pid_t start(Words words, const std::string& err, const std::string& out_file = "/dev/null") {
  words.insert(words.begin(), ::pl::test::binary());
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int out = ::open(out_file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  const int to = ::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (::dup2(out, 1) < 0 || ::dup2(to, 2) < 0) ::_exit(126);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Until the file is there and has that in it, or half a minute has passed.
void wait_for_text(const std::string& path, const std::string& wanted) {
  for (int i = 0; i < 3000; ++i) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && read_bytes(path).find(wanted) != std::string::npos)
      return;
    ::usleep(10'000);
  }
}

void wait_for_steps(const std::string& run, int64_t steps) {
  wait_for_text(run + "/log.jsonl", "\"step\":" + std::to_string(steps) + ",");
}

Words train_words(const std::string& data, const std::string& run) {
  return {"train",  "mlp", "--data",    data, "--batch", "32", "--epochs",           "3",
          "--seed", "5",   "--threads", "1",  "--run",   run,  "--checkpoint-every", "3"};
}

// 400 images of noise with labels, as IDX files.
std::string make_data(const TempFolder& folder) {
  using ::pl::test::big;
  const auto put = [&](const char* part, uint32_t n) {
    std::string images = std::string("\0\0\x08\x03", 4) + big(n) + big(28) + big(28);
    std::string labels = std::string("\0\0\x08\x01", 4) + big(n);
    for (uint32_t i = 0; i < n; ++i) {
      labels += static_cast<char>(i % 10);
      for (uint32_t p = 0; p < 784; ++p)
        images += static_cast<char>((i * 2654435761u + p * 40503u) >> 13);
    }
    ::pl::test::write_bytes(folder / (std::string(part) + "-images-idx3-ubyte"), images);
    ::pl::test::write_bytes(folder / (std::string(part) + "-labels-idx1-ubyte"), labels);
  };
  put("train", 400);
  put("t10k", 64);
  return folder.path();
}

Json end_of(const Finished& done) {
  EXPECT_EQ(done.exit, 0) << done.err;
  return done.event("end");
}

std::string state_of(const Json& end) {
  const Json* state = end.find("state_xxh3");
  return state ? state->as_string("state") : "none";
}

TEST(ResumeCommand, KilledAndInterruptedRunsEndWithTheSameBits) {
  const TempFolder folder, data_folder;
  const std::string data = make_data(data_folder);
  Words whole = train_words(data, folder / "whole");
  whole.push_back("--json");
  const std::string wanted = state_of(end_of(plimsoll(whole)));

  const std::string run = folder / "run", err = folder / "err";
  pid_t child = start(train_words(data, run), err);
  wait_for_steps(run, 5);
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), -SIGKILL);

  child = start({"train", "--resume", run}, err);
  wait_for_steps(run, 16);
  ::kill(child, SIGINT);
  const int code = wait_for(child);
  if (code != 0) {  // it may have been faster than the signal
    EXPECT_EQ(code, 130);
    EXPECT_NE(read_bytes(err).find("go on with: plimsoll train --resume " + run), std::string::npos)
        << read_bytes(err);
  }
  const Finished rest = plimsoll({"train", "--resume", run, "--json"});
  EXPECT_EQ(state_of(end_of(rest)), wanted);
  EXPECT_EQ(integer_at(rest.event("end"), "steps"), 39);
  // The log has each step once.
  const std::string log = read_bytes(run + "/log.jsonl");
  EXPECT_EQ(log.find("interrupted"), std::string::npos) << "an end that was none";
  for (int step = 1; step <= 39; ++step) {
    const std::string text = "\"event\":\"step\",\"step\":" + std::to_string(step) + ",";
    EXPECT_NE(log.find(text), std::string::npos) << step;
    EXPECT_EQ(log.find(text), log.rfind(text)) << step;
  }
  EXPECT_EQ(read_bytes(run + "/log.csv"), read_bytes(folder / "whole" + "/log.csv"));
  EXPECT_EQ(read_bytes(run + "/weights.safetensors"),
            read_bytes(folder / "whole" + "/weights.safetensors"));
  // A finished run that is resumed has nothing to do; with more epochs it has.
  EXPECT_EQ(state_of(end_of(plimsoll({"train", "--resume", run, "--json"}))), wanted);
  EXPECT_EQ(
      integer_at(end_of(plimsoll({"train", "--resume", run, "--epochs", "4", "--json"})), "steps"),
      52);
}

// Every file under a folder, with what is in it and when it was written.
std::string listing(const std::string& folder) {
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto written = entry.last_write_time().time_since_epoch().count();
    lines.push_back(entry.path().string() + " " + std::to_string(written) +
                    (entry.is_regular_file() ? read_bytes(entry.path().string()) : "") + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

TEST(ResumeCommand, OfAFinishedRunSaysSoAndWritesNothing) {
  const TempFolder folder, data_folder;
  const std::string data = make_data(data_folder), run = folder / "run";
  for (const Words& most : {Words{}, Words{"--steps", "30"}, Words{"--steps", "39"}}) {
    std::filesystem::remove_all(run);
    Words words = train_words(data, run);
    words.insert(words.end(), most.begin(), most.end());
    const Finished whole = plimsoll(words);
    ASSERT_EQ(whole.exit, 0) << whole.err;
    words.push_back("--json");
    const std::string before = listing(run), steps = most.empty() ? "39" : most[1];
    const Finished text = plimsoll({"train", "--resume", run});
    EXPECT_EQ(text.exit, 0) << text.err;
    EXPECT_NE(text.err.find("finished after " + steps + " steps; more --"), std::string::npos)
        << text.err;
    const Finished json = plimsoll({"train", "--resume", run, "--json"});
    ASSERT_EQ(json.lines().size(), 2u) << json.out << json.err;
    EXPECT_EQ(json.lines()[0].at("event", "first"), Json("plan"));
    const Json end = json.lines()[1];
    EXPECT_EQ(end.at("event", "second"), Json("end"));
    EXPECT_TRUE(end.at("step_ms_median", "end").is_null());
    EXPECT_EQ(integer_at(end, "steps"), std::stoll(steps));
    EXPECT_EQ(listing(run), before);
    // Its hashes are those of the run's own end.
    const std::string log = read_bytes(run + "/log.jsonl");
    EXPECT_NE(log.find("\"state_xxh3\":\"" + state_of(end) + "\""), std::string::npos);
    EXPECT_NE(log.find(end.at("weights_xxh3", "end").dump()), std::string::npos);
    // Without its weights it is not finished: they are what a killed process had still to write.
    std::filesystem::remove(run + "/weights.safetensors");
    EXPECT_EQ(plimsoll({"train", "--resume", run}).exit, 0);
    EXPECT_TRUE(std::filesystem::exists(run + "/weights.safetensors"));
  }
}

TEST(ResumeCommand, WithoutARunFolderNothingIsSaved) {
  const TempFolder folder;
  const pid_t child = start({"train", "mlp", "--steps", "1000000", "--threads", "1", "--json"},
                            folder / "err", folder / "out");
  wait_for_text(folder / "out", "\"event\":\"step\"");
  ::kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 143);
  EXPECT_NE(read_bytes(folder / "err").find("nothing was saved"), std::string::npos);
  const std::string out = read_bytes(folder / "out");
  const Json last = parse_json(out.substr(out.rfind('\n', out.size() - 2) + 1), "last line");
  EXPECT_EQ(last.at("event", "last").as_string("event"), "end");
  EXPECT_EQ(last.at("interrupted", "last").as_string("interrupted"), "SIGTERM");
  EXPECT_GT(integer_at(last, "steps"), 0);
}

TEST(ResumeCommand, RefusesWhatItCannotGoOnWith) {
  const TempFolder folder;
  const std::string run = folder / "run";
  EXPECT_EQ(plimsoll({"train", "--resume", folder / "none"}).exit, 2);
  ASSERT_EQ(plimsoll({"train", "mlp", "--steps", "4", "--threads", "1", "--run", run}).exit, 0);
  // A new run over one that can go on.
  Finished done = plimsoll({"train", "mlp", "--steps", "4", "--run", run});
  EXPECT_EQ(done.exit, 2);
  EXPECT_NE(done.err.find("--resume"), std::string::npos) << done.err;
  // Other settings.
  done = plimsoll({"train", "--resume", run, "--batch", "16"});
  EXPECT_EQ(done.exit, 2);
  EXPECT_NE(done.err.find("batch: expected 32"), std::string::npos) << done.err;
  done = plimsoll({"train", "mnist-cnn", "--resume", run});
  EXPECT_EQ(done.exit, 2) << done.err;
  EXPECT_EQ(plimsoll({"train", "mlp", "--checkpoint-every", "3"}).exit, 2);  // where to?
  // A damaged checkpoint.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run + "/checkpoints"))
    if (entry.path().filename() == "manifest.json")
      ::pl::test::write_bytes(entry.path().string(), "{\"format\":");
  EXPECT_EQ(plimsoll({"train", "--resume", run}).exit, 2);
}

TEST(ResumeCommand, CheckpointsAreOnTheBill) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const TempFolder folder;
  const auto plan = [](const Words& more) {
    Words words{"plan", "mlp", "--threads", "1", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return plimsoll(words).lines().at(0);
  };
  const Json without = plan({}), with = plan({"--checkpoint-every", "2"});
  const int64_t copy = integer_at(with.at("checkpoint", "plan"), "bytes");
  EXPECT_GE(copy, integer_at(with, "persistent_bytes"));
  EXPECT_GE(integer_at(with, "fixed_bytes"), copy + 4 * kMiB);
  EXPECT_GT(integer_at(with, "process_bytes"), integer_at(without, "process_bytes"));
  const Finished done =
      plimsoll_measured({"train", "mlp", "--threads", "1", "--steps", "9", "--json",
                         "--checkpoint-every", "2", "--run", folder / "run"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const int64_t planned = integer_at(with, "process_bytes");
  EXPECT_EQ(integer_at(done.event("plan"), "process_bytes"), planned);
  EXPECT_LE(done.peak, planned);
  EXPECT_GE(done.peak, planned - std::max<int64_t>(planned / 50, 2 * kMiB));
  EXPECT_EQ(done.event("end").at("heap_allocations_per_step", "end").as_real("heap"), 0);
  // Without room for the copy it is written between steps, and the least budget is the same.
  const Json tight = plan({"--checkpoint-every", "2", "--memory", std::to_string(planned - 1)});
  EXPECT_EQ(integer_at(tight.at("checkpoint", "plan"), "bytes"), 0);
  EXPECT_EQ(tight.at("fits", "plan"), Json(true));
}

// What the writer adds to the least budget is said where that is named.
TEST(ResumeCommand, ARefusalNamesWhatWritingCheckpointsTakes) {
  const auto refused = [](const Words& more) {
    Words words{"plan", "small-cnn", "--batch", "256", "--threads", "1", "--memory", "8MiB"};
    words.insert(words.end(), more.begin(), more.end());
    return plimsoll(words);
  };
  const auto least = [&](Words more) {
    more.push_back("--json");
    return integer_at(refused(more).lines().at(0), "minimum_bytes");
  };
  const int64_t raised = least({"--checkpoint-every", "2"}) - least({});
  EXPECT_GT(raised, 0);
  const Finished with = refused({"--checkpoint-every", "2"}), without = refused({});
  EXPECT_EQ(with.exit, 3);
  EXPECT_NE(with.err.find("of it at most " + std::to_string(raised) + " ("), std::string::npos)
      << with.err;
  EXPECT_NE(with.err.find("for writing checkpoints"), std::string::npos) << with.err;
  EXPECT_EQ(without.err.find("for writing checkpoints"), std::string::npos) << without.err;
}

}  // namespace
}  // namespace pl::test::resume_test

// What surrounds the process: thread settings, another instruction set, closed pipes, limits. None
// of it may change numbers silently, break the budget, or end in a signal.
#include "tests/end_to_end/command.h"
#include "tests/places.h"
#include "tests/setting.h"

namespace pl::test::environment_test {
namespace {

// Runs a line of shell in which $P is plimsoll.
Finished shell(const std::string& line) {
  const TempFolder folder;
  ::setenv("P", ::pl::test::binary().c_str(), 1);
  ::setenv("FOLDER", (folder / "").c_str(), 1);
  return run_words({"/bin/sh", "-c", line}, folder);
}

TEST(Environment, ATeamSmallerThanAskedForIsRefused) {
  for (const char* name : {"OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS"}) {
    const Setting setting(name, name[4] == 'T' ? "1" : "0");
    const Finished done = plimsoll({"train", "mlp", "--steps", "2", "--threads", "2", "--json"});
    EXPECT_EQ(done.exit, 2) << name << done.err;
    EXPECT_NE(done.err.find(name), std::string::npos) << done.err;
  }
}

// Without AVX-512 the library runs other code and packs operands on the heap: the bound must hold.
TEST(Environment, OtherInstructionSetsStayBelowThePlan) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  for (const char* isa : {"avx2", "sse4"}) {
    const Setting setting("PLIMSOLL_SIMD", isa);
    for (const Words& words :
         {Words{"mlp"}, Words{"mlp", "--batch", "2048"}, Words{"mnist-cnn", "--batch", "256"},
          Words{"small-cnn", "--batch", "8"}, Words{"gpt-tiny", "--batch", "2"}}) {
      Words train{"train"};
      train.insert(train.end(), words.begin(), words.end());
      for (const char* word : {"--steps", "3", "--json"}) train.push_back(word);
      const Finished done = plimsoll_measured(train);
      ASSERT_EQ(done.exit, 0) << done.err;
      EXPECT_LE(done.peak, integer_at(done.event("plan"), "process_bytes"))
          << isa << " " << words[0];
    }
  }
}

// Where pages of code come with their neighbours, the plan is a bound, and as good as it can be.
TEST(Environment, WithoutUserfaultfdThePlanHolds) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const Words through{::pl::test::tool("without"), "userfaultfd"};
  for (const char* model : {"mlp", "mnist-cnn", "gpt-tiny"}) {
    const Finished done =
        plimsoll_measured({"train", model, "--batch", "8", "--steps", "3", "--json"}, through);
    ASSERT_EQ(done.exit, 0) << done.err;
    const int64_t planned = integer_at(done.event("plan"), "process_bytes");
    EXPECT_LE(done.peak, planned) << model;
    EXPECT_GE(done.peak, planned - 6 * kMiB) << model;
  }
}

TEST(Environment, ThreadsThatCannotBeMadeAreSaid) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make threads of their own";
  const TempFolder folder;
  const Words through{::pl::test::tool("without"), "threads"};
  const Setting nominal("PLIMSOLL_COSTS", "nominal");
  for (const Words& words :
       {Words{"--threads", "2"},
        {"--threads", "1", "--checkpoint-every", "1", "--run", folder / "run"},
        {"--threads", "2", "--data", ::pl::test::golden("files/one_sample.npz"), "--input", "4",
         "--batch", "1"}}) {
    Words train{"train", "mlp", "--steps", "2", "--json"};
    train.insert(train.end(), words.begin(), words.end());
    const Finished done = plimsoll_measured(train, through);
    EXPECT_EQ(done.signal, 0);
    EXPECT_EQ(done.exit, 1) << done.err;
    EXPECT_NE(done.err.find("thread"), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("; lower --threads"), std::string::npos) << done.err;
    for (const char* wrong : {"[internal]", "libgomp", "defect"})
      EXPECT_EQ(done.err.find(wrong), std::string::npos) << done.err;
  }
  // What needs none goes on.
  EXPECT_EQ(plimsoll_measured({"train", "mlp", "--steps", "2", "--threads", "1"}, through).exit, 0);
}

TEST(Environment, ThreadsHaveADefault) {
  const auto planned = [](const Words& more) {
    Words words{"plan", "mlp", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return integer_at(plimsoll(words).lines().at(0), "threads");
  };
  const Setting setting("PLIMSOLL_THREADS", "3");
  EXPECT_EQ(planned({}), 3);
  EXPECT_EQ(planned({"--threads", "1"}), 1);
  for (const char* wrong : {"0", "1025", "two", "2 ", "-1", "99999999999999999999"}) {
    const Setting bad("PLIMSOLL_THREADS", wrong);
    const Finished done = plimsoll({"plan", "mlp"});
    EXPECT_EQ(done.exit, 2) << wrong;
    EXPECT_NE(done.err.find("PLIMSOLL_THREADS"), std::string::npos) << done.err;
  }
}

// Hidden instructions are those of the library and of our own kernels: a plan's numerics differ
// from level to level, as far down as this machine goes.
TEST(Environment, InstructionsCanBeHidden) {
  const auto numerics = [](const char* level) {
    const Setting setting("PLIMSOLL_SIMD", level);
    const Finished done = plimsoll({"plan", "mnist-cnn", "--json"});
    EXPECT_EQ(done.exit, 0) << done.err;
    return done.lines().at(0).at("numerics", "plan").as_string("numerics");
  };
  EXPECT_NE(numerics("sse4"), numerics("avx2"));
  for (const char* wrong : {"AVX2", "avx", "avx2 "}) {
    const Setting bad("PLIMSOLL_SIMD", wrong);
    for (const Words& words : {Words{"plan", "mlp"}, Words{"models"}}) {
      const Finished done = plimsoll(words);
      EXPECT_EQ(done.exit, 2) << wrong;
      EXPECT_NE(done.err.find("amx, bf16, avx512, avx2 or sse4"), std::string::npos) << done.err;
    }
  }
}

TEST(Environment, VerboseLibrariesDoNotMixWithJson) {
  const Setting setting("ONEDNN_VERBOSE", "2");
  const Finished done = plimsoll({"train", "mlp", "--steps", "2", "--json"});
  EXPECT_EQ(done.exit, 0);
  EXPECT_EQ(done.lines().size(), 5u);  // plan, two steps, epoch, end
}

TEST(Environment, AnAnswerThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(shell("$P plan mlp --json > /dev/full").exit, 1);
  EXPECT_EQ(shell("$P train mlp --steps 5 --json >&-").exit, 1);
  EXPECT_EQ(shell("($P train mlp --steps 3000 --json; echo $? >&2) | head -1").err.find("0\n"),
            std::string::npos);
}

TEST(Environment, LimitsEndInAMessage) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space of their own";
  for (const char* limit : {"ulimit -v 80000", "ulimit -d 20000", "ulimit -v 70000"}) {
    const Finished done = shell(std::string(limit) + "; $P train mlp --steps 2 --threads 2 --json");
    EXPECT_EQ(done.exit, 3) << limit << ": " << done.err;
  }
  const Finished file =
      shell("ulimit -f 1; $P train mlp --steps 2 --save-weights $FOLDER/w > /dev/null");
  EXPECT_EQ(file.exit, 1) << file.err;
}

// What is found to be left is what it is planned for, and that is there when it is taken.
TEST(Environment, MaxUnderALimitTrains) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space of their own";
  for (const char* model : {"mnist-cnn --batch 1024", "mlp --batch 8192"})
    for (const char* limit : {"-v 150000", "-v 200000", "-v 230000", "-d 130000", "-d 150000"})
      for (const char* threads : {"1", "2"}) {
        const std::string line = std::string("ulimit ") + limit +
                                 "; PLIMSOLL_COSTS=nominal $P train " + model +
                                 " --steps 1 --memory max --json --threads " + threads;
        const Finished done = shell(line);
        EXPECT_EQ(done.signal, 0) << line;
        EXPECT_EQ(done.exit, 0) << line << ": " << done.err;
      }
}

TEST(Environment, ManyEpochsTakeNoMoreMemory) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const std::string data = ::pl::test::golden("files/one_sample.npz");
  const Finished done =
      plimsoll_measured({"train", "mlp", "--data", data, "--input", "4", "--batch", "1", "--epochs",
                         "30000", "--threads", "1", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_LE(done.peak, integer_at(done.event("plan"), "process_bytes"));
}

}  // namespace
}  // namespace pl::test::environment_test

#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <cmath>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "tests/data_files.h"
#include "tests/disk_faults.h"
#include "train/checkpoint_store.h"

namespace pl::checkpoint_test {
namespace {

using test::expect_data_error;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

VariableLayout layout_of(Dim units) {
  return layout_variables(
      {{"dense/kernel", {Dtype::float32, {4, units}}, Category::parameters},
       {"dense/bias", {Dtype::float32, {units}}, Category::parameters},
       {"adam/dense/kernel/momentum", {Dtype::float32, {4, units}}, Category::optimizer}},
      64);
}

// Every byte depends on `salt`.
void fill(Variables& variables, int salt) {
  for (size_t i = 0; i < variables.layout().entries.size(); ++i) {
    char* data = static_cast<char*>(variables.at(i));
    for (Bytes b = 0; b < variables.layout().entries[i].meta.bytes(); ++b)
      data[b] = static_cast<char>(static_cast<int>(b) * 7 + static_cast<int>(i) + salt);
  }
}

TrainState state_at(int64_t steps) {
  TrainState state;
  state.position.steps = steps;
  state.identity.seed = 0xFEDCBA9876543210;
  state.position.sums = {0.1, -0.0, 1e300};
  return state;
}

void write(const std::string& folder, const Variables& variables, int64_t steps) {
  write_checkpoint(folder, named_variables(variables), state_at(steps));
}

// Which salt a whole checkpoint in the folder has; -1: it is not the one it says it is.
int64_t steps_in(const std::string& folder) {
  Variables variables(layout_of(3)), wanted(layout_of(3));
  const Checkpoint checkpoint(folder);
  checkpoint.verify(variables.layout());
  checkpoint.load(variables);
  const TrainState state = train_state_from(checkpoint.state(), folder);
  fill(wanted, static_cast<int>(state.position.steps));
  return variables.hash(false) == wanted.hash(false) ? state.position.steps : -1;
}

TEST(Checkpoint, HoldsVariablesAndStateToTheBit) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  fill(variables, 5);
  write(folder / "c", variables, 5);
  EXPECT_EQ(steps_in(folder / "c"), 5);
  const TrainState state = train_state_from(Checkpoint(folder / "c").state(), "c");
  EXPECT_EQ(state.identity.seed, 0xFEDCBA9876543210u);
  ASSERT_EQ(state.position.sums.size(), 3u);
  EXPECT_TRUE(std::signbit(state.position.sums[1]));
  EXPECT_EQ(state.position.sums[0], 0.1);
}

TEST(Checkpoint, NumbersThatJsonHasNot) {
  for (double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e-310, 0.1}) {
    const double back = real_from(parse_json(real_json(value).dump(), "x"), "x");
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value;
  }
}

// A key that grew is said, and the run goes on.
TEST(Checkpoint, NumericsThatDifferByTheLibraryAloneAreSaid) {
  TrainState state = state_at(1);
  state.identity.numerics = "kernels and oneDNN 1";
  state.identity.kernels = "kernels";
  RunIdentity now = train_state_from(to_json(state), "state").identity;
  EXPECT_EQ(check_identity(state.identity, now), "");
  now.numerics = "kernels and oneDNN 2";
  EXPECT_NE(check_identity(state.identity, now).find("the same kernels with another version"),
            std::string::npos);
  // As written before there was a version in it.
  Json identity = Json::object(), old = Json::object();
  const Json written = to_json(state);
  for (const auto& [key, value] : written.at("identity", "state").as_object("identity"))
    if (key != "kernels") identity.set(key, key == "numerics" ? Json("kernels") : value);
  for (const auto& [key, value] : written.as_object("state"))
    old.set(key, key == "identity" ? identity : value);
  const RunIdentity before = train_state_from(old, "state").identity;
  EXPECT_NE(check_identity(before, now).find("did not note the version of oneDNN"),
            std::string::npos);
  now.kernels = "others";
  EXPECT_NE(check_identity(before, now).find("kernels, a device or"), std::string::npos);
}

TEST(Checkpoint, AnotherModelIsRefusedByTheLayersName) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  write(folder / "c", variables, 1);
  const Checkpoint checkpoint(folder / "c");
  expect_data_error([&] { checkpoint.verify(layout_of(7)); },
                    "dense/kernel: expected float32 (4, 7)");
  VariableLayout fewer = layout_of(3);
  fewer.entries.pop_back();
  expect_data_error([&] { checkpoint.verify(fewer); }, "adam/dense/kernel/momentum");
}

TEST(Checkpoint, EveryDamagedByteIsFound) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  fill(variables, 2);
  write(folder / "c", variables, 2);
  for (const auto& file : std::filesystem::directory_iterator(folder / "c")) {
    const std::string path = file.path().string(), whole = read_bytes(path);
    // All of the header and text; of tensors some bytes.
    for (size_t i = 0; i < whole.size(); i += 3) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x11);
      write_bytes(path, damaged);
      try {
        EXPECT_NE(steps_in(folder / "c"), -1) << path << " byte " << i;
      } catch (const DataError&) {
      }
    }
    for (size_t cut : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
      write_bytes(path, whole.substr(0, cut));
      // The last byte of the manifest is a line's end.
      if (cut + 1 < whole.size()) expect_data_error([&] { steps_in(folder / "c"); });
    }
    write_bytes(path, whole);
  }
  EXPECT_EQ(steps_in(folder / "c"), 2);
}

TEST(Checkpoint, NamesThatLeadOutOfTheFolderAreRefused) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  write(folder / "c", variables, 1);
  const std::string path = folder / "c" + "/manifest.json", text = read_bytes(path);
  const size_t at = text.find("variables-"), end = text.find('"', at);
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "", "variables-../x.safetensors",
                           "variables-0000000000000000.safetensors"}) {
    write_bytes(path, text.substr(0, at) + name + text.substr(end));
    expect_data_error([&] { Checkpoint checkpoint(folder / "c"); });
  }
}

// The n-th call of the functions that write fails; with `forever`, so do all behind it.
struct Fault {
  int countdown = 0;
  bool forever = false;
  int error = EIO;
};
Fault fault;
bool committed = false;  // the new manifest has its name
int fail_at(const DiskCall& call) {
  --fault.countdown;
  if (fault.countdown == 0 || (fault.forever && fault.countdown < 0)) return fault.error;
  if (call.kind == DiskCall::Kind::rename && call.to.ends_with(kManifest)) committed = true;
  return 0;
}

TEST(Checkpoint, AFailedWriteLeavesTheLastGoodOne) {
  Variables variables(layout_of(3));
  for (const int error : {EIO, ENOSPC})
    for (const bool forever : {false, true}) {
      const TempFolder folder;
      fill(variables, 1);
      write(folder / "c", variables, 1);
      fill(variables, 2);
      int n = 1;
      for (bool failed = true; failed; ++n) {
        fault = {n, forever, error};
        committed = false;
        try {
          const test::DiskFaults faults(fail_at);
          write(folder / "c", variables, 2);
          failed = false;
        } catch (const BackendError& error) {
          EXPECT_NE(std::string(error.what()).find("[file]"), std::string::npos);
        }
        const int64_t steps = steps_in(folder / "c");
        EXPECT_TRUE(steps == 1 || (steps == 2 && committed)) << "fault " << n << ": " << steps;
        if (steps == 2) {
          fill(variables, 1);
          write(folder / "c", variables, 1);
          fill(variables, 2);
        }
      }
      EXPECT_GT(n, 12);
    }
}

TEST(Checkpoint, AFileSizeLimitIsAnErrorNotASignal) {
  const TempFolder folder;
  Variables variables(layout_of(64));
  write(folder / "c", variables, 1);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{700, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  fill(variables, 3);
  EXPECT_THROW(write(folder / "c", variables, 2), BackendError);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(train_state_from(Checkpoint(folder / "c").state(), "c").position.steps, 1);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(CheckpointStore, KeepsTheLastAndTheBest) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  CheckpointStore store({folder / "s", 2});
  const double scores[] = {3, 1, 2, 5, 4};
  for (int64_t step = 1; step <= 5; ++step) {
    TrainState state = state_at(step);
    state.score = scores[step - 1];
    store.write(named_variables(variables), state);
  }
  const std::vector<std::string> wanted{"step-0000000002", "step-0000000004", "step-0000000005"};
  EXPECT_EQ(names_in(folder / "s"), wanted);
  // Another store, as after a restart, knows the best too; steps behind the one that is written are
  // of a future that was given up.
  CheckpointStore again({folder / "s", 1});
  again.write(named_variables(variables), state_at(4));
  const std::vector<std::string> after{"step-0000000002", "step-0000000004"};
  EXPECT_EQ(names_in(folder / "s"), after);
  again.remove_all();
  EXPECT_FALSE(std::filesystem::exists(folder / "s"));
}

TEST(CheckpointStore, WhatAKilledWriterLeftDoesNotCount) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  CheckpointStore store({folder / "s", 2});
  EXPECT_EQ(latest_checkpoint(folder / "s"), std::nullopt);
  store.write(named_variables(variables), state_at(7));
  const std::string half = folder / "s" + "/step-0000000009";
  std::filesystem::create_directories(half);
  write_bytes(half + "/manifest.json.tmp-1-2", "{");
  EXPECT_EQ(latest_checkpoint(folder / "s"), folder / "s" + "/step-0000000007");
  std::filesystem::create_directories(folder / "s" + "/notes");
  store.write(named_variables(variables), state_at(10));
  const std::vector<std::string> wanted{"notes", "step-0000000007", "step-0000000010"};
  EXPECT_EQ(names_in(folder / "s"), wanted);
}

TEST(CheckpointWriter, CopiesBeforeItReturns) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  CheckpointStore store({folder / "s", 8});
  {
    CheckpointWriter writer(store, snapshot_bytes(variables.layout().bytes));
    for (int step = 1; step <= 8; ++step) {
      fill(variables, step);
      writer.save(named_variables(variables), state_at(step));
      fill(variables, 77);  // training goes on at once
    }
  }
  for (const std::string& name : names_in(folder / "s"))
    EXPECT_NE(steps_in(folder / "s" + "/" + name), -1) << name;
  EXPECT_EQ(names_in(folder / "s").size(), 8u);
}

TEST(CheckpointWriter, AFailureInTheBackgroundIsToldOnce) {
  const TempFolder folder;
  Variables variables(layout_of(3));
  CheckpointStore store({folder / "s", 2});
  CheckpointWriter writer(store, snapshot_bytes(variables.layout().bytes));
  fault = {1, true, ENOSPC};
  {
    const test::DiskFaults faults(fail_at);
    writer.save(named_variables(variables), state_at(1));
    EXPECT_THROW(writer.wait(), BackendError);
  }
  writer.wait();
  writer.save(named_variables(variables), state_at(2));
  writer.wait();
  EXPECT_EQ(latest_checkpoint(folder / "s"), folder / "s" + "/step-0000000002");
}

}  // namespace
}  // namespace pl::checkpoint_test

// The checkpoints of one run: a folder with a folder for each, of which the last few and the best
// are kept; written between steps, or beside them from a copy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/host_memory.h"
#include "train/checkpoint.h"
#include "train/train_state.h"

namespace pl {

struct StoreOptions {
  std::string folder;
  int64_t keep = 2;  // the last so many, and the one with the lowest score
};

// The newest checkpoint under the folder, or none. Drafts that a killed writer left do not count.
std::optional<std::string> latest_checkpoint(const std::string& folder);

class CheckpointStore {
 public:
  explicit CheckpointStore(StoreOptions options);
  const std::string& folder() const { return options_.folder; }

  // Durable when it returns, and only then older ones go.
  void write(std::span<const NamedBytes> tensors, const TrainState& state);
  void remove_all();

 private:
  std::string folder_of(int64_t step) const;
  void make_durable();
  void prune(int64_t newest);

  StoreOptions options_;
  std::optional<std::pair<double, int64_t>> best_;  // score, step
  bool durable_ = false;                            // the folder and its place
};

// What writing takes from the heap: the tables of tensors, and with a copy its thread.
Bytes checkpoint_bytes(size_t tensors);
Bytes snapshot_bytes(Bytes tensors);

// Writes into a store: between steps, or, with room for a copy, by a thread of its own.
class CheckpointWriter {
 public:
  // `granted`: snapshot_bytes() of all tensors together, resident from now on; 0: no copy.
  CheckpointWriter(CheckpointStore& store, Bytes granted);
  ~CheckpointWriter();  // waits for a write under way
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // To be called between steps. With a copy it returns when that is made, which may have to wait
  // for the last write; a failure of that one is thrown here.
  void save(std::span<const NamedBytes> tensors, TrainState state);
  // Until nothing is under way; throws what went wrong.
  void wait();
  bool busy() const { return busy_.load(std::memory_order_acquire); }

 private:
  void work();
  void throw_failure();

  CheckpointStore& store_;
  Reservation snapshot_;
  // Of the write under way; the worker's while busy_.
  std::vector<NamedBytes> tensors_;
  TrainState state_;
  std::exception_ptr failure_;

  std::atomic<bool> busy_{false};
  bool quit_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread worker_;
};

}  // namespace pl

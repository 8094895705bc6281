#include "train/checkpoint_store.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace pl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr Bytes kAlign = 64;
constexpr Bytes kWriterThread = 256 * kKiB;  // its stack and its part of the heap

// The step of a folder named step-0000000120, or none.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStep) || name.size() < kStep.size() + 10 || name.size() > 24)
    return std::nullopt;
  int64_t step = 0;
  for (char c : name.substr(kStep.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step;
}

// Steps that have a folder, ascending.
std::vector<std::pair<int64_t, std::string>> step_folders(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> list;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const auto step = step_of(at->path().filename().string()))
      list.emplace_back(*step, at->path().string());
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

std::optional<std::string> latest_checkpoint(const std::string& folder) {
  std::optional<std::string> latest;
  for (const auto& [step, path] : step_folders(folder))
    if (has_checkpoint(path)) latest = path;
  return latest;
}

CheckpointStore::CheckpointStore(StoreOptions options) : options_(std::move(options)) {
  // Which one is the best so far is known by the newest; what is damaged is the loader's business.
  for (const auto& [step, path] : step_folders(options_.folder)) {
    if (!has_checkpoint(path)) continue;
    try {
      const Checkpoint checkpoint(path);
      const TrainState state = train_state_from(checkpoint.state(), path);
      if (state.score && (!best_ || *state.score < best_->first)) best_ = {*state.score, step};
    } catch (const Error&) {
    }
  }
}

std::string CheckpointStore::folder_of(int64_t step) const {
  char name[32];
  std::snprintf(name, sizeof name, "step-%010lld", static_cast<long long>(step));
  return (fs::path(options_.folder) / name).string();
}

void CheckpointStore::write(std::span<const NamedBytes> tensors, const TrainState& state) {
  const int64_t step = state.position.steps;
  make_durable();
  write_checkpoint(folder_of(step), tensors, state);
  if (state.score && (!best_ || *state.score <= best_->first)) best_ = {*state.score, step};
  prune(step);
}

// The folder may be of a process that was killed before it could sync those above.
void CheckpointStore::make_durable() {
  make_directories(options_.folder);
  if (durable_) return;
  const std::string above = pl::folder_of(options_.folder);
  for (const std::string& folder : {above, pl::folder_of(above)}) sync_folder(folder);
  durable_ = true;
}

void CheckpointStore::prune(int64_t newest) {
  int64_t kept = 0;
  auto list = step_folders(options_.folder);
  for (auto at = list.rbegin(); at != list.rend(); ++at) {
    const auto& [step, path] = *at;
    // Later ones are of a future that a resumed run has given up; folders without a manifest are
    // what a killed writer left.
    const bool whole = step <= newest && has_checkpoint(path);
    if (whole && (kept++ < options_.keep || (best_ && best_->second == step))) continue;
    remove_checkpoint(path);
  }
}

void CheckpointStore::remove_all() {
  for (const auto& [step, path] : step_folders(options_.folder)) remove_checkpoint(path);
  remove_folder(options_.folder);
  best_.reset();
}

Bytes checkpoint_bytes(size_t tensors) {
  // Name, shape and hash of a tensor: in the list, as JSON values, and in the two texts.
  return 64 * kKiB + static_cast<Bytes>(tensors) * 1200;
}

Bytes snapshot_bytes(Bytes tensors) { return tensors + kWriterThread; }

CheckpointWriter::CheckpointWriter(CheckpointStore& store, Bytes granted) : store_(store) {
  if (granted <= kWriterThread) return;
  snapshot_ = Reservation(granted - kWriterThread);
  snapshot_.prefault();
  worker_ = std::thread([this] { work(); });
}

CheckpointWriter::~CheckpointWriter() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void CheckpointWriter::save(std::span<const NamedBytes> tensors, TrainState state) {
  if (!worker_.joinable()) {
    store_.write(tensors, state);
    return;
  }
  wait();
  char* to = snapshot_.data();
  tensors_.assign(tensors.begin(), tensors.end());
  for (NamedBytes& tensor : tensors_) {
    const Bytes bytes = tensor.meta.bytes();
    check(to + bytes <= snapshot_.data() + snapshot_.bytes(), "the snapshot holds all tensors");
    std::memcpy(to, tensor.data, static_cast<size_t>(bytes));
    tensor.data = to;
    to += align_up(bytes, kAlign);
  }
  state_ = std::move(state);
  {
    const std::lock_guard lock(mutex_);
    busy_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void CheckpointWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy(); });
  throw_failure();
}

void CheckpointWriter::throw_failure() {
  if (!failure_) return;
  std::exception_ptr failure;
  std::swap(failure, failure_);
  std::rethrow_exception(failure);
}

void CheckpointWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return quit_ || busy(); });
    if (!busy()) return;  // a write that was handed over is finished first
    lock.unlock();
    std::exception_ptr failure;
    try {
      store_.write(tensors_, state_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    busy_.store(false, std::memory_order_release);
    changed_.notify_all();
  }
}

}  // namespace pl

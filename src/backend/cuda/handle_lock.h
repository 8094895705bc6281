// HandleLock: a library's handle is one thread's at a time. Those who build plans wait for each
// other, up to a second in all; whoever runs one goes before them.
#pragma once

#include <condition_variable>
#include <mutex>

namespace pl {

class HandleLock {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [&] { return !held_ && first_ == 0; });
    held_ = true;
  }
  void lock_first() {
    std::unique_lock lock(mutex_);
    ++first_;
    free_.wait(lock, [&] { return !held_; });
    --first_;
    held_ = true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    free_.notify_all();
  }

  bool awaited() {  // by somebody who goes first
    const std::lock_guard lock(mutex_);
    return first_ > 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool held_ = false;
  int first_ = 0;  // who wait to go before others
};

}  // namespace pl

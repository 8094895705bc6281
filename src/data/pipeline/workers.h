// The threads of one pipeline. Jobs are begun in the order they came. Who waits for a job that
// nobody has begun runs it himself, so one waits for running work only, and any number of threads,
// none included, makes progress.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tensor/value_memory.h"

namespace pl {

// How a thread shares the cores with those that compute. Work that is done ahead steps back: it
// gets the time that computing leaves, and all of it when computing waits for data.
enum class Priority : uint8_t { equal, behind };

// A thread with a small stack: a writable mapping counts against limits whether touched or not.
class SmallThread {
 public:
  SmallThread() = default;
  // Throws BackendError when the system gives none. `body` does not throw.
  explicit SmallThread(std::function<void()> body, Priority priority = Priority::behind);
  SmallThread(SmallThread&& other) noexcept;
  SmallThread& operator=(SmallThread&& other) noexcept;
  ~SmallThread() { join(); }
  void join();

  static constexpr Bytes kStack = 512 * kKiB;

 private:
  bool running_ = false;
  pthread_t thread_{};
};

class Job {
 public:
  virtual ~Job() = default;

 protected:
  virtual void work() noexcept = 0;  // on any thread, with the pipeline's memory in scope

 private:
  friend class Workers;
  enum class State { waiting, running, done } state_ = State::waiting;  // of the pool's mutex
};

class Workers {
 public:
  // Threads start with the first job.
  Workers(int threads, std::shared_ptr<ValueMemory> memory);
  ~Workers();  // all jobs are done or dropped before

  // Before the first job: of threads that work while nobody computes.
  void set_priority(Priority priority) { priority_ = priority; }
  void submit(std::shared_ptr<Job> job);
  bool is_done(const Job& job) const;
  // Returns when it is done. True: at once, or it was run here; false: it was waited for.
  bool finish(Job& job);
  // Not begun: it never will be. Running: waits for its end.
  void drop(Job& job);

 private:
  void serve();
  void run(Job& job, std::unique_lock<std::mutex>& lock);

  const int threads_wanted_;
  Priority priority_ = Priority::behind;
  const std::shared_ptr<ValueMemory> memory_;
  mutable std::mutex mutex_;
  std::condition_variable more_, ended_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool stop_ = false;
  std::vector<SmallThread> threads_;
};

}  // namespace pl

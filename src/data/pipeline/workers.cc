#include "data/pipeline/workers.h"

#include <sys/resource.h>

#include <utility>

#include "base/error.h"

namespace pl {
namespace {

// A tenth of a core that others want, and all of it else.
constexpr int kBehind = 10;

void step_back() {
  // On Linux the priority is the thread's own. Where it cannot be lowered, nothing is lost.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kBehind);
}

void* enter(void* body) {
  const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(body));
  (*call)();
  return nullptr;
}

}  // namespace

SmallThread::SmallThread(std::function<void()> body, Priority priority) {
  auto call = std::make_unique<std::function<void()>>([priority, body = std::move(body)] {
    if (priority == Priority::behind) step_back();
    body();
  });
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<size_t>(kStack));
  const int error = pthread_create(&thread_, &attributes, enter, call.get());
  pthread_attr_destroy(&attributes);
  if (error != 0)
    throw BackendError(std::string("[data] expected a further thread, the system made none") +
                       kThreadRemedy);
  call.release();
  running_ = true;
}

SmallThread::SmallThread(SmallThread&& other) noexcept
    : running_(std::exchange(other.running_, false)), thread_(other.thread_) {}

SmallThread& SmallThread::operator=(SmallThread&& other) noexcept {
  join();
  running_ = std::exchange(other.running_, false);
  thread_ = other.thread_;
  return *this;
}

void SmallThread::join() {
  if (std::exchange(running_, false)) pthread_join(thread_, nullptr);
}

Workers::Workers(int threads, std::shared_ptr<ValueMemory> memory)
    : threads_wanted_(threads), memory_(std::move(memory)) {}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  more_.notify_all();
  for (SmallThread& thread : threads_) thread.join();
}

void Workers::submit(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  while (static_cast<int>(threads_.size()) < threads_wanted_)
    threads_.emplace_back([this] { serve(); }, priority_);
  queue_.push_back(std::move(job));
  more_.notify_one();
}

bool Workers::is_done(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.state_ == Job::State::done;
}

void Workers::run(Job& job, std::unique_lock<std::mutex>& lock) {
  job.state_ = Job::State::running;
  lock.unlock();
  {
    const MemoryScope scope(memory_);
    job.work();
  }
  lock.lock();
  job.state_ = Job::State::done;
  ended_.notify_all();
}

bool Workers::finish(Job& job) {
  std::unique_lock lock(mutex_);
  if (job.state_ == Job::State::done) return true;
  if (job.state_ == Job::State::waiting) {
    run(job, lock);  // its place in the queue is passed over
    return true;
  }
  ended_.wait(lock, [&] { return job.state_ == Job::State::done; });
  return false;
}

void Workers::drop(Job& job) {
  std::unique_lock lock(mutex_);
  if (job.state_ == Job::State::waiting) job.state_ = Job::State::done;
  ended_.wait(lock, [&] { return job.state_ == Job::State::done; });
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    if (job->state_ == Job::State::waiting) run(*job, lock);
    // What the last handle frees may be large, and needs no lock.
    lock.unlock();
    job.reset();
    lock.lock();
  }
}

}  // namespace pl

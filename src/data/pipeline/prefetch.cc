// prefetch: a thread that makes elements before they are asked for, as many as the ledger lends
// bytes for. With nothing to borrow it makes one when one is asked for.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <utility>

#include "base/error.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

constexpr int64_t kMostTuned = 64;

class Prefetch final : public Stage {
 public:
  Prefetch(StageRef input, int64_t elements, Bytes bytes)
      : Stage("prefetch", {std::move(input)}), elements_(elements), bytes_(bytes) {
    spec_ = this->input().spec();
    cardinality_ = this->input().cardinality();
    indexable_ = this->input().indexable();
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Rows rows() const override { return input().rows(); }
  Bytes once(const Sizing& sizing) const override { return input().once(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + out_bytes(sizing);
  }
  Bytes ahead(const Sizing& sizing, int threads) const override {
    const int64_t most = elements_ == AUTOTUNE ? kMostTuned : elements_;
    return Stage::ahead(sizing, threads) + (bytes_ > 0 ? bytes_ : times(most, out_bytes(sizing)));
  }
  Bytes beside() const override { return SmallThread::kStack / 2; }
  std::string options() const override {
    if (bytes_ > 0) return format_bytes(bytes_);
    return elements_ == AUTOTUNE ? "AUTOTUNE" : std::to_string(elements_);
  }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return input().get(run, epoch, i);
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override;

  int64_t elements() const { return elements_; }
  Bytes bytes() const { return bytes_; }
  const Stage& from() const { return input(); }

 private:
  int64_t elements_;
  Bytes bytes_;
};

class PrefetchIterator final : public Iterator {
 public:
  PrefetchIterator(const Prefetch& node, Run& run, uint64_t epoch)
      : node_(node),
        run_(run),
        out_bytes_(node.out_bytes(run.sizing())),
        input_(node.from().iterate(run, epoch)),
        figures_(run.figures(node)) {
    limit_ = node.bytes() > 0 ? std::max<int64_t>(1, node.bytes() / out_bytes_) : node.elements();
    tuned_ = limit_ == AUTOTUNE;
    if (tuned_) limit_ = 2;
    figures_.buffer = limit_;
  }

  ~PrefetchIterator() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  bool next(Element& out) override {
    out.clear();
    start();
    std::unique_lock lock(mutex_);
    if (queue_.empty() && !ended_) wait(lock);
    if (queue_.empty()) return false;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    item.loan.settle(0);  // it is in the consumer's hand now
    wake_.notify_all();
    if (item.error) std::rethrow_exception(item.error);
    out = std::move(item.element);
    ++figures_.elements;
    return true;
  }

  int64_t advance(int64_t count) override {
    return started_ ? Iterator::advance(count) : input_->advance(count);
  }

 private:
  struct Item {
    Element element;
    Loan loan;
    std::exception_ptr error;
  };

  void start() {
    if (std::exchange(started_, true)) return;
    thread_ = SmallThread([this] { serve(); });
  }

  void wait(std::unique_lock<std::mutex>& lock) {
    const auto begin = std::chrono::steady_clock::now();
    asked_ = true;
    // It was full at some time and is empty now: work comes in bursts, and a longer queue helps.
    if (tuned_ && std::exchange(was_full_, false) && limit_ < kMostTuned)
      figures_.buffer = limit_ *= 2;
    wake_.notify_all();
    ready_.wait(lock, [this] { return !queue_.empty() || ended_; });
    asked_ = false;
    figures_.waited_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count();
  }

  // Whether to make one more, and with what; false: not now.
  bool may_make(Loan& loan) {
    if (asked_ && queue_.empty()) return true;  // within the floor
    if (static_cast<int64_t>(queue_.size()) >= limit_) {
      was_full_ = true;
      return false;
    }
    loan = run_.ledger().try_ahead(out_bytes_);
    return static_cast<bool>(loan);
  }

  void serve() {
    const MemoryScope scope(run_.ledger().memory());
    std::unique_lock lock(mutex_);
    while (true) {
      Item item;
      wake_.wait(lock, [&] { return stop_ || may_make(item.loan); });
      if (stop_) return;
      lock.unlock();
      bool more = true;
      try {
        more = input_->next(item.element);
        item.loan.settle(granted(item.element));
      } catch (...) {
        item.error = std::current_exception();
        item.loan.settle(0);
      }
      lock.lock();
      if (more) {
        queue_.push_back(std::move(item));
        const auto held = static_cast<int64_t>(queue_.size());
        if (held > figures_.held_peak) figures_.held_peak = held;
      } else {
        ended_ = true;
      }
      ready_.notify_all();
      if (!more) return;
    }
  }

  const Prefetch& node_;
  Run& run_;
  const Bytes out_bytes_;
  IteratorRef input_;
  StageFigures& figures_;
  bool tuned_ = false, started_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_, ready_;
  int64_t limit_ = 1;
  std::deque<Item> queue_;
  bool asked_ = false, was_full_ = false, ended_ = false, stop_ = false;
  SmallThread thread_;
};

IteratorRef Prefetch::iterate(Run& run, uint64_t epoch) const {
  return std::make_unique<PrefetchIterator>(*this, run, epoch);
}

}  // namespace

StageRef prefetch_stage(StageRef input, int64_t elements, Bytes bytes) {
  if (elements < 1 && elements != AUTOTUNE && bytes <= 0)
    throw UserError(
        "[data] prefetch: expected a positive number of elements, AUTOTUNE or bytes, received " +
        std::to_string(elements));
  return std::make_shared<Prefetch>(std::move(input), elements, bytes);
}

}  // namespace pl

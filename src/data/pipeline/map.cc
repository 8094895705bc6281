// map: a function of each element, one after another or several at once, in order always.
#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "base/error.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

using Clock = std::chrono::steady_clock;

class Map final : public Stage {
 public:
  Map(StageRef input, MapFunction function, MapFacts facts, const std::string& kind)
      : Stage(kind, {std::move(input)}),
        kind_(kind),
        function_(std::move(function)),
        facts_(std::move(facts)) {
    spec_ = facts_.spec;
    cardinality_ = this->input().cardinality();
    indexable_ = this->input().indexable();
  }

  bool parallel() const { return facts_.parallel != 1; }
  // A map of batches may change what they hold; rows that it makes unknown are the input's.
  Rows rows() const override {
    const Rows own = Stage::rows();
    for (const FieldSpec& field : spec_.fields)
      if (field.shape.rank() < 1) return own;
    return own.batch > 0 ? own : input().rows();
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    if (facts_.max_bytes <= 0 && facts_.bytes_per_byte > 0 && !spec_.known())
      return times(facts_.bytes_per_byte, input().out_bytes(sizing)) + granted(facts_.more_bytes);
    return bound_of(spec_, facts_.max_bytes, sizing);
  }
  // A call and its result, without what goes in.
  Bytes call_bytes(const Sizing& sizing) const { return out_bytes(sizing) + scratch(sizing); }
  Bytes scratch(const Sizing& sizing) const {
    if (facts_.scratch < 0) return out_bytes(sizing);
    // An eighth of the budget is an unknown element's.
    const Bytes most = facts_.roomy ? sizing.unknown / 4 : 0;
    return granted(std::max(facts_.scratch, most));
  }
  Bytes once(const Sizing& sizing) const override {
    return input().once(sizing) + call_bytes(sizing);
  }
  Bytes floor(const Sizing& sizing) const override {
    const bool by_index = parallel() && indexable_;
    return (by_index ? input().once(sizing) : input().floor(sizing)) + call_bytes(sizing);
  }
  // One element under way: what goes in, the call, what comes out.
  Bytes slot_bytes(const Sizing& sizing) const {
    return call_bytes(sizing) + (indexable_ ? input().once(sizing) : input().out_bytes(sizing));
  }
  int64_t most_slots(int threads) const {
    return facts_.parallel == AUTOTUNE ? 4 * threads + 4 : facts_.parallel;
  }
  Bytes ahead(const Sizing& sizing, int threads) const override {
    if (!parallel()) return Stage::ahead(sizing, threads);
    return (indexable_ ? 0 : Stage::ahead(sizing, threads)) +
           (most_slots(threads) - 1) * slot_bytes(sizing);
  }
  Bytes beside() const override { return facts_.beside; }
  std::string decides() const override { return facts_.key + (facts_.random ? "|random" : ""); }
  uint64_t contents() const override { return facts_.contents ? facts_.contents() : 0; }
  bool draws() const override { return facts_.random && !facts_.seed; }
  bool uses_workers() const override { return parallel(); }
  std::string options() const override {
    if (!parallel()) return "";
    return facts_.parallel == AUTOTUNE ? "AUTOTUNE" : std::to_string(facts_.parallel);
  }

  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return call(run, epoch, i, input().get(run, epoch, i));
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override;

  Element call(Run& run, uint64_t epoch, int64_t i, const Element& in) const {
    return guarded(name_, i, [&] {
      const uint64_t key =
          random_key(facts_.seed.value_or(run.seed(*this)), epoch, static_cast<uint64_t>(i));
      Element out =
          facts_.roomy ? facts_.roomy(in, key, scratch(run.sizing())) : function_(in, key);
      check_element(spec_, out, name_);
      if (!spec_.known() && granted(out) > out_bytes(run.sizing()))
        throw DataError("expected an element of at most " + format_bytes(out_bytes(run.sizing())) +
                        ", received " + format_bytes(granted(out)) +
                        "; give the stage a larger max_bytes");
      return out;
    });
  }
  const MapFacts& facts() const { return facts_; }
  const MapFunction& function() const { return function_; }
  const StageRef& input_ref() const { return inputs_[0]; }
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
  MapFunction function_;
  MapFacts facts_;
};

class SerialIterator final : public Iterator {
 public:
  SerialIterator(const Map& node, Run& run, uint64_t epoch)
      : node_(node),
        run_(run),
        epoch_(epoch),
        input_(node.inputs()[0]->iterate(run, epoch)),
        figures_(run.figures(node)) {}
  bool next(Element& out) override {
    out.clear();
    Element in;
    const int64_t at = at_++;  // one that fails has its place
    if (!input_->next(in)) return false;
    out = node_.call(run_, epoch_, at, in);
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    const int64_t done = input_->advance(count);
    at_ += done;
    return done;
  }

 private:
  const Map& node_;
  Run& run_;
  const uint64_t epoch_;
  IteratorRef input_;
  StageFigures& figures_;
  int64_t at_ = 0;
};

// One element under way. Written by whoever runs it, read when it is done.
class Slot final : public Job {
 public:
  Slot(const Map& node, Run& run, uint64_t epoch, int64_t place, bool by_index, Loan loan)
      : loan(std::move(loan)),
        node_(node),
        run_(run),
        epoch_(epoch),
        place_(place),
        by_index_(by_index) {}

  Loan loan;
  Element in, out;
  std::exception_ptr error;

 protected:
  void work() noexcept override {
    try {
      out = by_index_ ? node_.get(run_, epoch_, place_) : node_.call(run_, epoch_, place_, in);
      in.clear();
      loan.settle(granted(out));
    } catch (...) {
      error = std::current_exception();
      in.clear();
      loan.settle(0);
    }
  }

 private:
  const Map& node_;
  Run& run_;
  const uint64_t epoch_;
  const int64_t place_;
  const bool by_index_;
};

// Slots in order; the first is the next to be delivered. The first of an empty ring is made within
// the floor, all others need a loan.
class ParallelIterator final : public Iterator {
 public:
  ParallelIterator(const Map& node, Run& run, uint64_t epoch)
      : node_(node),
        run_(run),
        epoch_(epoch),
        by_index_(node.indexable()),
        figures_(run.figures(node)) {
    const Stage& input = *node.inputs()[0];
    const Sizing& sizing = run.sizing();
    slot_bytes_ = node.slot_bytes(sizing);
    if (!by_index_) input_ = input.iterate(run, epoch);
    tuned_ = node.facts().parallel == AUTOTUNE;
    window_ = tuned_ ? run.threads() + 1 : node.facts().parallel;
    most_ = node.most_slots(run.threads());
    figures_.parallel = window_;
  }
  ~ParallelIterator() override {
    for (const auto& slot : slots_) run_.workers().drop(*slot);
  }

  bool next(Element& out) override {
    out.clear();
    fill();
    if (slots_.empty()) return false;
    const auto start = Clock::now();
    const bool ready = run_.workers().is_done(*slots_.front());
    run_.workers().finish(*slots_.front());
    if (!ready) {
      figures_.waited_ns +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
      tune();
    }
    const std::shared_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    // Taken out, so that it is not the worker, a moment later, who lets go of it.
    if (slot->error) std::rethrow_exception(std::exchange(slot->error, nullptr));
    out = std::move(slot->out);
    slot->loan.settle(0);  // it is in the consumer's hand now
    fill();
    ++figures_.elements;
    return true;
  }

  int64_t advance(int64_t count) override {
    if (!slots_.empty()) return Iterator::advance(count);
    int64_t done = count;
    if (!by_index_)
      done = input_->advance(count);
    else if (node_.cardinality() >= 0)
      done = std::min(count, node_.cardinality() - begun_);
    begun_ += done;
    return done;
  }

 private:
  // The first was not ready although the ring was full of work: one more may help, unless all of
  // the rest is still to be done as well, which more of the same would not change.
  void tune() {
    if (!tuned_ || window_ >= most_ || static_cast<int64_t>(slots_.size()) < window_) return;
    int64_t ready = 0;
    for (const auto& slot : slots_) ready += run_.workers().is_done(*slot);
    if (ready > 1) figures_.parallel = ++window_;
  }

  void fill() {
    while (!ended_ && static_cast<int64_t>(slots_.size()) < window_) {
      if (by_index_ && node_.cardinality() >= 0 && begun_ >= node_.cardinality()) return;
      Loan loan;
      if (!slots_.empty() && !(loan = run_.ledger().try_ahead(slot_bytes_))) return;
      auto slot = std::make_shared<Slot>(node_, run_, epoch_, begun_, by_index_, std::move(loan));
      if (!by_index_ && !pull(*slot)) return;
      ++begun_;
      slots_.push_back(slot);
      const auto held = static_cast<int64_t>(slots_.size());
      if (held > figures_.held_peak) figures_.held_peak = held;
      if (slot->error)
        run_.workers().drop(*slot);  // delivered in its turn
      else
        run_.workers().submit(slot);
    }
  }

  bool pull(Slot& slot) {
    try {
      if (input_->next(slot.in)) return true;
      ended_ = true;
      return false;
    } catch (...) {
      slot.error = std::current_exception();
      return true;
    }
  }

  const Map& node_;
  Run& run_;
  const uint64_t epoch_;
  const bool by_index_;
  StageFigures& figures_;
  IteratorRef input_;
  Bytes slot_bytes_ = 0;
  bool tuned_ = false, ended_ = false;
  int64_t window_ = 1, most_ = 1, begun_ = 0;
  std::deque<std::shared_ptr<Slot>> slots_;
};

IteratorRef Map::iterate(Run& run, uint64_t epoch) const {
  if (parallel()) return std::make_unique<ParallelIterator>(*this, run, epoch);
  return std::make_unique<SerialIterator>(*this, run, epoch);
}

}  // namespace

StageRef map_stage(StageRef input, MapFunction function, MapFacts facts, const std::string& kind) {
  return std::make_shared<Map>(std::move(input), std::move(function), std::move(facts), kind);
}

StageRef shuffled(StageRef input, const std::function<StageRef(StageRef)>& shuffle) {
  const auto* map = dynamic_cast<const Map*>(input.get());
  if (!map) return shuffle(input);
  return map_stage(shuffled(map->input_ref(), shuffle), map->function(), map->facts(), map->kind());
}

}  // namespace pl

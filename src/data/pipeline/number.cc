// repeat, take, skip, shard, zip, concatenate, enumerate: which elements, and how many.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

// A stage whose elements are those of its input, or of its inputs put together: it holds nothing of
// its own beside what it hands on.
class Passing : public Stage {
 public:
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Bytes once(const Sizing& sizing) const override { return input().once(sizing); }
  Bytes floor(const Sizing& sizing) const override { return input().floor(sizing); }

 protected:
  Passing(const std::string& kind, StageRef input) : Stage(kind, {std::move(input)}) {
    spec_ = this->input().spec();
    indexable_ = this->input().indexable();
  }
};

// An iterator out of two functions, counting what it hands on.
class CallIterator final : public Iterator {
 public:
  using Next = std::function<bool(Element&)>;
  using Advance = std::function<int64_t(int64_t)>;
  CallIterator(StageFigures& figures, Next next, Advance advance)
      : figures_(figures), next_(std::move(next)), advance_(std::move(advance)) {}
  bool next(Element& out) override {
    out.clear();
    if (!next_(out)) return false;
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    return advance_ ? advance_(count) : Iterator::advance(count);
  }

 private:
  StageFigures& figures_;
  Next next_;
  Advance advance_;
};

class Repeat final : public Passing {
 public:
  Repeat(StageRef input, int64_t count) : Passing("repeat", std::move(input)), count_(count) {
    const int64_t size = this->input().cardinality();
    if (size == 0 || count == 0)
      cardinality_ = 0;
    else if (count < 0)
      cardinality_ = kInfiniteCardinality;
    else
      cardinality_ = size < 0 ? size : checked_mul(size, count).value_or(kInfiniteCardinality);
    indexable_ = indexable_ && size > 0;
  }
  std::string options() const override { return count_ < 0 ? "" : std::to_string(count_); }
  std::string decides() const override { return options(); }
  Rows rows() const override {
    Rows rows = input().rows();
    if (count_ < 0)
      rows.endless = true;
    else if (count_ != 1 && rows.samples >= 0 && rows.batch > 0)
      return rows.samples % rows.batch == 0
                 ? Rows{rows.batch, checked_mul(rows.samples, count_).value_or(-1), rows.endless}
                 : Rows{};
    return rows;
  }
  // Each pass of each epoch is an epoch of what is repeated.
  uint64_t inner_epoch(uint64_t epoch, int64_t pass) const {
    const auto number = static_cast<uint64_t>(pass);
    if (count_ >= 0) return epoch * static_cast<uint64_t>(count_) + number;
    return epoch == 0 ? number : random_key(epoch, 0, number);
  }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    const int64_t size = input().cardinality();
    return input().get(run, inner_epoch(epoch, i / size), i % size);
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Repeat& node, Run& run, uint64_t epoch)
          : node_(node), run_(run), epoch_(epoch), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        while (open()) {
          if (input_->next(out)) {
            some_ = true;
            ++figures_.elements;
            return true;
          }
          close();
        }
        return false;
      }
      int64_t advance(int64_t count) override {
        int64_t done = 0;
        if (const int64_t size = node_.input().cardinality(); size > 0 && !input_) {
          // Whole passes need not be begun.
          int64_t passes = count / size;
          if (node_.count_ >= 0) passes = std::min(passes, node_.count_ - pass_);
          pass_ += passes;
          done = passes * size;
        }
        while (done < count && open()) {
          const int64_t step = input_->advance(count - done);
          if (step > 0) some_ = true;
          done += step;
          if (done < count) close();
        }
        return done;
      }

     private:
      bool open() {
        if (ended_ || (node_.count_ >= 0 && pass_ >= node_.count_)) return false;
        if (!input_) {
          input_ = node_.input().iterate(run_, node_.inner_epoch(epoch_, pass_));
          some_ = false;
        }
        return true;
      }
      void close() {
        input_.reset();
        ++pass_;
        if (!some_) ended_ = true;  // there is nothing to repeat
      }

      const Repeat& node_;
      Run& run_;
      const uint64_t epoch_;
      StageFigures& figures_;
      IteratorRef input_;
      int64_t pass_ = 0;
      bool some_ = false, ended_ = false;
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  int64_t count_;  // -1: for ever
};

class Take final : public Passing {
 public:
  Take(StageRef input, int64_t count) : Passing("take", std::move(input)), count_(count) {
    const int64_t size = this->input().cardinality();
    if (count < 0)
      cardinality_ = size;
    else if (size == kUnknownCardinality)
      cardinality_ = size;
    else
      cardinality_ = size < 0 ? count : std::min(size, count);
  }
  std::string options() const override { return std::to_string(count_); }
  std::string decides() const override { return options(); }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return input().get(run, epoch, i);
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    auto from = std::shared_ptr<Iterator>(input().iterate(run, epoch));
    auto left = std::make_shared<int64_t>(count_ < 0 ? INT64_MAX : count_);
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [from, left](Element& out) {
          if (*left == 0) return false;
          --*left;  // one that fails is one of them
          return from->next(out);
        },
        [from, left](int64_t count) {
          const int64_t done = from->advance(std::min(count, *left));
          *left -= done;
          return done;
        });
  }

 private:
  int64_t count_;
};

class Skip final : public Passing {
 public:
  Skip(StageRef input, int64_t count) : Passing("skip", std::move(input)), count_(count) {
    const int64_t size = this->input().cardinality();
    cardinality_ = size < 0 ? size : std::max<int64_t>(0, size - count);
  }
  std::string options() const override { return std::to_string(count_); }
  std::string decides() const override { return options(); }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return input().get(run, epoch, i + count_);
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    auto from = std::shared_ptr<Iterator>(input().iterate(run, epoch));
    auto passed = std::make_shared<bool>(false);
    const auto pass = [from, passed, count = count_] {
      if (!std::exchange(*passed, true)) from->advance(count);
    };
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [from, pass](Element& out) {
          pass();
          return from->next(out);
        },
        [from, pass](int64_t count) {
          pass();
          return from->advance(count);
        });
  }

 private:
  int64_t count_;
};

class Shard final : public Passing {
 public:
  Shard(StageRef input, int64_t shards, int64_t index)
      : Passing("shard", std::move(input)), shards_(shards), index_(index) {
    const int64_t size = this->input().cardinality();
    cardinality_ = size < 0 ? size : size / shards + (index < size % shards);
  }
  std::string options() const override {
    return std::to_string(index_) + " of " + std::to_string(shards_);
  }
  std::string decides() const override { return options(); }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return input().get(run, epoch, i * shards_ + index_);
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    auto from = std::shared_ptr<Iterator>(input().iterate(run, epoch));
    auto before = std::make_shared<int64_t>(index_);  // to be passed over first
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [from, before, shards = shards_](Element& out) {
          if (from->advance(*before) < *before) return false;
          *before = shards - 1;
          return from->next(out);
        },
        [from, before, shards = shards_](int64_t count) -> int64_t {
          if (count == 0) return 0;
          // The last of them and all in front of it; more than there are comes to the end.
          count = std::min(count, (INT64_MAX - *before - 1) / shards);
          const int64_t all = *before + (count - 1) * shards + 1, done = from->advance(all);
          const int64_t passed = done > *before ? (done - *before - 1) / shards + 1 : 0;
          *before = shards - 1;
          return passed;
        });
  }

 private:
  int64_t shards_, index_;
};

class Zip final : public Stage {
 public:
  explicit Zip(std::vector<StageRef> inputs) : Stage("zip", std::move(inputs)) {
    indexable_ = true;
    cardinality_ = kInfiniteCardinality;
    bool unknown = false;
    for (const StageRef& input : inputs_) {
      spec_.fields.insert(spec_.fields.end(), input->spec().fields.begin(),
                          input->spec().fields.end());
      const int64_t size = input->cardinality();
      unknown = unknown || size == kUnknownCardinality;
      if (size >= 0) cardinality_ = cardinality_ < 0 ? size : std::min(cardinality_, size);
      indexable_ = indexable_ && input->indexable();
    }
    if (unknown && cardinality_ != 0) cardinality_ = kUnknownCardinality;
  }
  Bytes sum(const Sizing& sizing, Bytes (Stage::*of)(const Sizing&) const) const {
    Bytes sum = 0;
    for (const StageRef& input : inputs_) sum += (input.get()->*of)(sizing);
    return sum;
  }
  Bytes out_bytes(const Sizing& sizing) const override { return sum(sizing, &Stage::out_bytes); }
  Bytes once(const Sizing& sizing) const override { return sum(sizing, &Stage::once); }
  Bytes floor(const Sizing& sizing) const override { return sum(sizing, &Stage::floor); }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    Element out;
    for (const StageRef& input : inputs_)
      for (Tensor& tensor : input->get(run, epoch, i)) out.push_back(std::move(tensor));
    return out;
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    std::vector<std::shared_ptr<Iterator>> from;
    for (const StageRef& input : inputs_) from.emplace_back(input->iterate(run, epoch));
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [from](Element& out) {
          Element whole, part;
          std::exception_ptr error;  // all go on by one, so that they stay beside each other
          bool more = true;
          for (const auto& iterator : from) {
            try {
              more = iterator->next(part) && more;
              for (Tensor& tensor : part) whole.push_back(std::move(tensor));
            } catch (...) {
              if (!error) error = std::current_exception();
            }
            if (!more) return false;
          }
          if (error) std::rethrow_exception(error);
          out = std::move(whole);
          return true;
        },
        [from](int64_t count) {
          int64_t least = count;
          for (const auto& iterator : from) least = std::min(least, iterator->advance(count));
          return least;
        });
  }
};

class Concatenate final : public Stage {
 public:
  Concatenate(StageRef first, StageRef second)
      : Stage("concatenate", {std::move(first), std::move(second)}) {
    spec_ = inputs_[0]->spec();
    if (!merge_specs(spec_, inputs_[1]->spec()))
      throw UserError("[data] " + name_ + ": expected data sets of one signature, received " +
                      inputs_[0]->spec().text() + " and " + inputs_[1]->spec().text() +
                      "; map them to one");
    const int64_t a = inputs_[0]->cardinality(), b = inputs_[1]->cardinality();
    if (a == kInfiniteCardinality || b == kInfiniteCardinality)
      cardinality_ = kInfiniteCardinality;
    else if (a == kUnknownCardinality || b == kUnknownCardinality)
      cardinality_ = kUnknownCardinality;
    else
      cardinality_ = a > INT64_MAX - b ? kInfiniteCardinality : a + b;  // as good as
    indexable_ = inputs_[0]->indexable() && inputs_[1]->indexable();
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    return std::max(inputs_[0]->out_bytes(sizing), inputs_[1]->out_bytes(sizing));
  }
  Bytes once(const Sizing& sizing) const override {
    return std::max(inputs_[0]->once(sizing), inputs_[1]->once(sizing));
  }
  Bytes floor(const Sizing& sizing) const override {
    return std::max(inputs_[0]->floor(sizing), inputs_[1]->floor(sizing));
  }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    const int64_t first = inputs_[0]->cardinality();
    return first < 0 || i < first ? inputs_[0]->get(run, epoch, i)
                                  : inputs_[1]->get(run, epoch, i - first);
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    struct State {
      IteratorRef from;
      size_t part = 0;
    };
    auto state = std::make_shared<State>();
    const auto open = [this, &run, epoch, state] {
      if (!state->from && state->part < 2) state->from = inputs_[state->part]->iterate(run, epoch);
      return state->from != nullptr;
    };
    const auto close = [state] {
      state->from.reset();  // the second's memory is the first's
      ++state->part;
    };
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [state, open, close](Element& out) {
          while (open()) {
            if (state->from->next(out)) return true;
            close();
          }
          return false;
        },
        [state, open, close](int64_t count) {
          int64_t done = 0;
          while (done < count && open()) {
            done += state->from->advance(count - done);
            if (done < count) close();
          }
          return done;
        });
  }
};

class Enumerate final : public Stage {
 public:
  Enumerate(StageRef input, int64_t start) : Stage("enumerate", {std::move(input)}), start_(start) {
    spec_.fields.push_back({"index", Dtype::int64, Shape()});
    for (const FieldSpec& field : this->input().spec().fields) spec_.fields.push_back(field);
    cardinality_ = this->input().cardinality();
    indexable_ = this->input().indexable();
  }
  Bytes extra() const { return granted(Bytes{8}); }
  std::string options() const override {
    return start_ == 0 ? "" : "from " + std::to_string(start_);
  }
  std::string decides() const override { return options(); }
  Bytes out_bytes(const Sizing& sizing) const override {
    return input().out_bytes(sizing) + extra();
  }
  Bytes once(const Sizing& sizing) const override { return input().once(sizing) + extra(); }
  Bytes floor(const Sizing& sizing) const override { return input().floor(sizing) + extra(); }
  Element number(int64_t i, Element element) const {
    Tensor index(Meta{Dtype::int64, Shape()});
    *index.data_as<int64_t>() = start_ + i;
    element.insert(element.begin(), index);
    return element;
  }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    return number(i, input().get(run, epoch, i));
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    auto from = std::shared_ptr<Iterator>(input().iterate(run, epoch));
    auto at = std::make_shared<int64_t>(0);
    return std::make_unique<CallIterator>(
        run.figures(*this),
        [this, from, at](Element& out) {
          const int64_t i = (*at)++;
          Element in;
          if (!from->next(in)) return false;
          out = number(i, std::move(in));
          return true;
        },
        [from, at](int64_t count) {
          const int64_t done = from->advance(count);
          *at += done;
          return done;
        });
  }

 private:
  int64_t start_;
};

class AssertCardinality final : public Passing {
 public:
  AssertCardinality(StageRef input, int64_t count)
      : Passing("assert_cardinality", std::move(input)), count_(count) {
    cardinality_ = count;
    indexable_ = false;
  }
  // `at`: elements so far, those that failed included; above count_: it was said, and is over.
  bool next(Iterator& from, int64_t& at, Element& out) const {
    if (at > count_) return false;
    const int64_t before = at++;
    const bool more = from.next(out);
    if (more && before < count_) return true;
    at = before;
    if (!more && before == count_) return false;
    at = count_ + 1;
    out.clear();
    throw DataError("[data] " + name_ + ": expected " + std::to_string(count_) +
                    " elements, received " + (more ? "more" : std::to_string(before)) +
                    "; assert the number that there is");
  }
  std::string options() const override { return std::to_string(count_); }
  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    auto from = std::shared_ptr<Iterator>(input().iterate(run, epoch));
    auto at = std::make_shared<int64_t>(0);
    return std::make_unique<CallIterator>(
        run.figures(*this), [this, from, at](Element& out) { return next(*from, *at, out); },
        [this, from, at](int64_t count) {
          // The place behind the last is that of the error, where there is one.
          const int64_t done = from->advance(std::min(count, std::max<int64_t>(0, count_ - *at)));
          *at += done;
          int64_t more = 0;
          for (Element passed; done + more < count;) {
            try {
              if (!next(*from, *at, passed)) break;
            } catch (const DataError&) {
            }
            ++more;
          }
          return done + more;
        });
  }

 private:
  int64_t count_;
};

void expect_count(const char* stage, int64_t value, int64_t least) {
  if (value < least)
    throw UserError("[data] " + std::string(stage) + ": expected " + std::to_string(least) +
                    " or more, received " + std::to_string(value));
}

}  // namespace

StageRef repeat_stage(StageRef input, int64_t count) {
  expect_count("repeat", count, -1);
  return std::make_shared<Repeat>(std::move(input), count);
}
StageRef take_stage(StageRef input, int64_t count) {
  expect_count("take", count, -1);
  return std::make_shared<Take>(std::move(input), count);
}
StageRef skip_stage(StageRef input, int64_t count) {
  expect_count("skip", count, 0);
  return std::make_shared<Skip>(std::move(input), count);
}
StageRef shard_stage(StageRef input, int64_t shards, int64_t index) {
  expect_count("shard", shards, 1);
  if (index < 0 || index >= shards)
    throw UserError("[data] shard: expected an index from 0 to " + std::to_string(shards - 1) +
                    ", received " + std::to_string(index));
  return std::make_shared<Shard>(std::move(input), shards, index);
}
StageRef zip_stage(std::vector<StageRef> inputs) {
  return std::make_shared<Zip>(std::move(inputs));
}
StageRef concatenate_stage(StageRef first, StageRef second) {
  return std::make_shared<Concatenate>(std::move(first), std::move(second));
}
StageRef enumerate_stage(StageRef input, int64_t start) {
  return std::make_shared<Enumerate>(std::move(input), start);
}
StageRef assert_cardinality_stage(StageRef input, int64_t cardinality) {
  expect_count("assert_cardinality", cardinality, 0);
  return std::make_shared<AssertCardinality>(std::move(input), cardinality);
}

}  // namespace pl

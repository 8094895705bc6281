// repeat, take, skip, shard, assert_cardinality: which elements, and how many.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/pipeline/passing.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

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
          ended_ = true;  // unless it can be begun
          input_ = node_.input().iterate(run_, node_.inner_epoch(epoch_, pass_));
          ended_ = some_ = false;
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
StageRef assert_cardinality_stage(StageRef input, int64_t cardinality) {
  expect_count("assert_cardinality", cardinality, 0);
  return std::make_shared<AssertCardinality>(std::move(input), cardinality);
}

}  // namespace pl

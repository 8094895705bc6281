// zip, concatenate, enumerate: elements of several data sets, or with their number.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/pipeline/passing.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

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
      size_t part = 0;  // to be begun next
    };
    auto state = std::make_shared<State>();
    const auto open = [this, &run, epoch, state] {
      // One that cannot be begun is left out.
      if (!state->from && state->part < 2)
        state->from = inputs_[state->part++]->iterate(run, epoch);
      return state->from != nullptr;
    };
    const auto close = [state] { state->from.reset(); };  // the second's memory is the first's
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
    if (start_ > INT64_MAX - i)
      throw UserError("[data] " + name_ + ": expected numbers below 2^63, received " +
                      std::to_string(start_) + " and " + std::to_string(i) + " more; start lower");
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

}  // namespace

StageRef zip_stage(std::vector<StageRef> inputs) {
  return std::make_shared<Zip>(std::move(inputs));
}
StageRef concatenate_stage(StageRef first, StageRef second) {
  return std::make_shared<Concatenate>(std::move(first), std::move(second));
}
StageRef enumerate_stage(StageRef input, int64_t start) {
  return std::make_shared<Enumerate>(std::move(input), start);
}

}  // namespace pl

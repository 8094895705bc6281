// What stages that hand on the elements of others share.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "data/pipeline/stage.h"

namespace pl {

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

}  // namespace pl

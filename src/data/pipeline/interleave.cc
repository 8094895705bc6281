// interleave and flat_map: data sets made of elements, several at a time.
#include <algorithm>

#include "base/error.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

class Interleave final : public Stage {
 public:
  Interleave(StageRef input, Expand expand, InterleaveFacts facts)
      : Stage(facts.cycle == 1 ? "flat_map" : "interleave", {std::move(input)}),
        expand_(std::move(expand)),
        facts_(std::move(facts)) {
    spec_ = facts_.spec;
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    return bound_of(spec_, facts_.max_bytes, sizing);
  }
  Bytes inner(const Sizing& sizing) const {
    return facts_.inner > 0 ? facts_.inner : 2 * out_bytes(sizing) + 256 * kKiB;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + facts_.cycle * inner(sizing);
  }
  std::string options() const override {
    if (facts_.cycle == 1) return "";
    return "cycle " + std::to_string(facts_.cycle) +
           (facts_.block == 1 ? "" : ", block " + std::to_string(facts_.block));
  }
  std::string decides() const override { return options(); }

  IteratorRef iterate(Run& run, uint64_t epoch) const override;
  const Expand& expand() const { return expand_; }
  const InterleaveFacts& facts() const { return facts_; }

 private:
  Expand expand_;
  InterleaveFacts facts_;
};

class InterleaveIterator final : public Iterator {
 public:
  InterleaveIterator(const Interleave& node, Run& run, uint64_t epoch)
      : node_(node),
        run_(run),
        epoch_(epoch),
        input_(node.inputs()[0]->iterate(run, epoch)),
        bound_(node.out_bytes(run.sizing())),
        figures_(run.figures(node)),
        lanes_(static_cast<size_t>(node.facts().cycle)) {}
  bool next(Element& out) override {
    out.clear();
    for (size_t idle = 0; idle < lanes_.size();) {
      Lane& lane = lanes_[at_];
      if (!lane.from && !open(lane)) {
        ++idle;
        turn();
        continue;
      }
      const int64_t block = node_.facts().block;
      if (taken_ < block && lane.from->next(out)) {
        if (++taken_ == block) turn();
        ++figures_.elements;
        check_element(node_.spec(), out, node_.name());
        if (granted(out) > bound_)
          throw DataError("[data] " + node_.name() + ": expected an element of at most " +
                          format_bytes(bound_) + ", received " + format_bytes(granted(out)) +
                          "; give the stage a larger max_bytes");
        return true;
      }
      close(lane);
      idle = 0;
      turn();
    }
    return false;
  }

 private:
  struct Lane {
    InnerStages stages;
    IteratorRef from;  // ends before them
  };
  static void close(Lane& lane) {
    lane.from.reset();
    lane.stages = {};
  }
  void turn() {
    at_ = (at_ + 1) % lanes_.size();
    taken_ = 0;
  }
  bool open(Lane& lane) {
    Element in;
    if (ended_) return false;
    if (!input_->next(in)) {
      ended_ = true;
      return false;
    }
    const int64_t number = read_++;
    StageRef root = guarded(node_.name(), number, [&] { return node_.expand()(in); });
    const Bytes needs = root->floor(run_.sizing()), given = node_.inner(run_.sizing());
    if (needs > given)
      throw DataError("[data] " + node_.name() + ": expected an inner data set within " +
                      format_bytes(given) + ", received one that needs " + format_bytes(needs) +
                      "; raise inner_bytes");
    // By its number, so that inner data sets draw other numbers than their neighbours.
    const auto place = static_cast<uint64_t>(number);
    const uint64_t first = random_key(run_.first_pass(node_), 0, place);
    InnerStages stages(run_, std::move(root), first);
    lane.from = stages.root().iterate(run_, random_key(first, epoch_, place));
    lane.stages = std::move(stages);
    return true;
  }

  const Interleave& node_;
  Run& run_;
  const uint64_t epoch_;
  IteratorRef input_;
  const Bytes bound_;
  StageFigures& figures_;
  std::vector<Lane> lanes_;
  size_t at_ = 0;
  int64_t taken_ = 0, read_ = 0;
  bool ended_ = false;
};

IteratorRef Interleave::iterate(Run& run, uint64_t epoch) const {
  return std::make_unique<InterleaveIterator>(*this, run, epoch);
}

}  // namespace

StageRef interleave_stage(StageRef input, Expand expand, InterleaveFacts facts) {
  if (facts.cycle < 1 || facts.cycle > 1024 || facts.block < 1)
    throw UserError(
        "[data] interleave: expected a cycle_length from 1 to 1024 and a positive block_length, "
        "received " +
        std::to_string(facts.cycle) + " and " + std::to_string(facts.block));
  return std::make_shared<Interleave>(std::move(input), std::move(expand), std::move(facts));
}

}  // namespace pl

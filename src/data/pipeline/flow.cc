// filter, interleave (and flat_map), ignore_errors: streams whose length nobody knows before.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

class Filter final : public Stage {
 public:
  Filter(StageRef input, Predicate predicate)
      : Stage("filter", {std::move(input)}), predicate_(std::move(predicate)) {
    spec_ = this->input().spec();
    const int64_t size = this->input().cardinality();
    if (size == 0) cardinality_ = 0;
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override { return input().floor(sizing); }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Filter& node, Run& run, uint64_t epoch)
          : node_(node), input_(node.input().iterate(run, epoch)), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        while (true) {
          const int64_t at = at_++;  // one that fails has its place
          if (!input_->next(out)) return false;
          if (!guarded(node_.name(), at, [&] { return node_.predicate_(out); })) continue;
          ++figures_.elements;
          return true;
        }
      }

     private:
      const Filter& node_;
      IteratorRef input_;
      StageFigures& figures_;
      int64_t at_ = 0;
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  Predicate predicate_;
};

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

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Interleave& node, Run& run, uint64_t epoch)
          : node_(node),
            run_(run),
            epoch_(epoch),
            input_(node.input().iterate(run, epoch)),
            bound_(node.out_bytes(run.sizing())),
            figures_(run.figures(node)),
            lanes_(static_cast<size_t>(node.facts_.cycle)) {}
      bool next(Element& out) override {
        out.clear();
        for (size_t idle = 0; idle < lanes_.size();) {
          Lane& lane = lanes_[at_];
          if (!lane.from && !open(lane)) {
            ++idle;
            turn();
            continue;
          }
          const int64_t block = node_.facts_.block;
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
        StageRef root = guarded(node_.name(), number, [&] { return node_.expand_(in); });
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
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  Expand expand_;
  InterleaveFacts facts_;
};

constexpr size_t kMessages = 16;  // that are remembered

struct Skipped final : Keep {
  std::mutex mutex;
  std::vector<std::string> messages;
};

class IgnoreErrors final : public Stage {
 public:
  IgnoreErrors(StageRef input, bool log) : Stage("ignore_errors", {std::move(input)}), log_(log) {
    spec_ = this->input().spec();
    if (this->input().cardinality() == kInfiniteCardinality) cardinality_ = kInfiniteCardinality;
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override { return input().floor(sizing); }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const IgnoreErrors& node, Run& run, uint64_t epoch)
          : node_(node), run_(run), input_(node.input().iterate(run, epoch)) {}
      bool next(Element& out) override {
        while (true) {
          try {
            if (!input_->next(out)) return false;
            ++run_.figures(node_).elements;
            return true;
          } catch (const DataError& error) {
            note(error.what());
          }
        }
      }

     private:
      void note(const char* message) {
        ++run_.figures(node_).skipped;
        auto& skipped = run_.keep<Skipped>(node_, [] { return std::make_unique<Skipped>(); });
        const std::lock_guard lock(skipped.mutex);
        if (skipped.messages.size() >= kMessages) return;
        skipped.messages.emplace_back(message);
        if (node_.log_) std::fprintf(stderr, "plimsoll: skipped: %s\n", message);
      }

      const IgnoreErrors& node_;
      Run& run_;
      IteratorRef input_;
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  bool log_;
};

}  // namespace

StageRef filter_stage(StageRef input, Predicate predicate) {
  return std::make_shared<Filter>(std::move(input), std::move(predicate));
}
StageRef interleave_stage(StageRef input, Expand expand, InterleaveFacts facts) {
  if (facts.cycle < 1 || facts.cycle > 1024 || facts.block < 1)
    throw UserError(
        "[data] interleave: expected a cycle_length from 1 to 1024 and a positive block_length, "
        "received " +
        std::to_string(facts.cycle) + " and " + std::to_string(facts.block));
  return std::make_shared<Interleave>(std::move(input), std::move(expand), std::move(facts));
}
StageRef ignore_errors_stage(StageRef input, bool log) {
  return std::make_shared<IgnoreErrors>(std::move(input), log);
}

std::vector<std::string> skipped_messages(Run& run, const Stage& node) {
  if (run.figures(node).skipped == 0) return {};
  auto& skipped = run.keep<Skipped>(node, [] { return std::make_unique<Skipped>(); });
  const std::lock_guard lock(skipped.mutex);
  return skipped.messages;
}

}  // namespace pl

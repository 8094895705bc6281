// filter, ignore_errors: streams whose length nobody knows before.
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

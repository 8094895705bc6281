// shuffle: a keyed permutation where elements can be got by index, a buffer over streams; and the
// mixing of several data sets.
#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/hash.h"
#include "data/pipeline/shelf.h"
#include "data/pipeline/stages.h"
#include "data/shuffle.h"

namespace pl {
namespace {

class Permute final : public Stage {
 public:
  Permute(StageRef input, std::optional<uint64_t> seed, bool each_epoch)
      : Stage("shuffle", {std::move(input)}), seed_(seed), each_epoch_(each_epoch) {
    spec_ = this->input().spec();
    cardinality_ = this->input().cardinality();
    indexable_ = true;
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Bytes once(const Sizing& sizing) const override { return input().once(sizing); }
  bool draws() const override { return !seed_; }
  std::string options() const override {
    return "permutation" + (seed_ ? ", seed " + std::to_string(*seed_) : "");
  }
  std::string decides() const override { return options() + (each_epoch_ ? "" : ", once"); }
  uint64_t pass(const Run& run, uint64_t epoch) const {
    return each_epoch_ ? epoch : run.first_pass(*this);
  }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    // The keys of its rounds are some 100 ns; an element costs more.
    const Permutation order(cardinality_, seed_.value_or(run.seed(*this)), pass(run, epoch));
    return input().get(run, epoch, order(i));
  }
  bool puts() const override { return input().puts(); }
  void put(Run& run, uint64_t epoch, int64_t i, std::span<char* const> to) const override {
    const Permutation order(cardinality_, seed_.value_or(run.seed(*this)), pass(run, epoch));
    input().put(run, epoch, order(i), to);
  }

 private:
  std::optional<uint64_t> seed_;
  bool each_epoch_;
};

class BufferShuffle final : public Stage {
 public:
  BufferShuffle(StageRef input, int64_t elements, Bytes bytes, std::optional<uint64_t> seed,
                bool each_epoch)
      : Stage("shuffle", {std::move(input)}),
        elements_(elements),
        bytes_(bytes),
        seed_(seed),
        each_epoch_(each_epoch) {
    spec_ = this->input().spec();
    cardinality_ = this->input().cardinality();
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  // Fixed before it runs, since the order depends on it; whatever the budget. Elements of unknown
  // size fill `bytes` by what each turns out to take.
  int64_t places() const {
    int64_t most = elements_;
    if (bytes_ > 0) {
      most = INT64_MAX;
      const Bytes each = std::max<Bytes>(1, Shelf::bytes(spec_, 1024, 0) / 1024);
      if (spec_.known()) most = std::max<int64_t>(1, (bytes_ - granted(Bytes{1})) / each);
    }
    return cardinality_ >= 0 ? std::min(most, std::max<int64_t>(1, cardinality_)) : most;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    const Bytes one = out_bytes(sizing);
    const Bytes held =
        bytes_ > 0 && !spec_.known() ? granted(bytes_) + one : Shelf::bytes(spec_, places(), one);
    return input().floor(sizing) + one + held;
  }
  bool draws() const override { return !seed_; }
  std::string options() const override {
    return (bytes_ > 0 ? format_bytes(bytes_) : std::to_string(elements_)) +
           (seed_ ? ", seed " + std::to_string(*seed_) : "");
  }
  std::string decides() const override {
    return std::to_string(bytes_) + " bytes, " + std::to_string(elements_) + ", " + options() +
           (each_epoch_ ? "" : ", once");
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const BufferShuffle& node, Run& run, uint64_t epoch)
          : input_(node.input().iterate(run, epoch)),
            shelf_(node.spec(), node.places()),
            places_(node.places()),
            bytes_(node.spec().known() || node.bytes_ <= 0 ? INT64_MAX : node.bytes_),
            seed_(node.seed_.value_or(run.seed(node))),
            epoch_(node.each_epoch_ ? epoch : run.first_pass(node)),
            figures_(run.figures(node)) {
        figures_.buffer = places_;
      }
      bool next(Element& out) override {
        out.clear();
        Element in;
        while (!ended_ && held_ < places_ && held_bytes_ < bytes_) {
          if (input_->next(in)) {
            if (bytes_ != INT64_MAX) held_bytes_ += granted(in);
            shelf_.put(held_++, std::move(in));
          } else {
            ended_ = true;
          }
          in.clear();
        }
        if (held_ == 0) return false;
        if (held_ > figures_.held_peak) figures_.held_peak = held_;
        const auto chosen = static_cast<int64_t>(random_key(seed_, epoch_, drawn_++) %
                                                 static_cast<uint64_t>(held_));
        out = shelf_.take(chosen);
        if (bytes_ != INT64_MAX) held_bytes_ -= granted(out);
        shelf_.move(--held_, chosen);
        ++figures_.elements;
        return true;
      }

     private:
      IteratorRef input_;
      Shelf shelf_;
      const int64_t places_;
      const Bytes bytes_;  // of the elements held, where their sizes differ
      const uint64_t seed_, epoch_;
      StageFigures& figures_;
      int64_t held_ = 0;
      Bytes held_bytes_ = 0;
      uint64_t drawn_ = 0;
      bool ended_ = false;
    };
    try {
      return std::make_unique<Iterate>(*this, run, epoch);
    } catch (const std::bad_alloc&) {
      refuse_buffer();
    } catch (const DoesNotFit& error) {
      // Of a stage in front it has a name already.
      if (!std::string(error.what()).starts_with("[runtime]")) throw;
      refuse_buffer();
    }
  }

 private:
  [[noreturn]] void refuse_buffer() const {
    throw DoesNotFit("[data] " + name_ + ": expected room for a buffer of " +
                     std::to_string(places()) + " elements, " +
                     format_bytes(Shelf::bytes(spec_, places(), 0)) +
                     ", received less from the machine; give a smaller buffer_size, or .bytes");
  }
  int64_t elements_;
  Bytes bytes_;
  std::optional<uint64_t> seed_;
  bool each_epoch_;
};

class Sample final : public Stage {
 public:
  Sample(std::vector<StageRef> inputs, std::vector<double> weights, std::optional<uint64_t> seed,
         bool stop_on_empty)
      : Stage("sample_from_datasets", std::move(inputs)),
        weights_(std::move(weights)),
        seed_(seed),
        stop_(stop_on_empty) {
    spec_ = inputs_[0]->spec();
    for (const StageRef& input : inputs_)
      if (!merge_specs(spec_, input->spec()))
        throw UserError("[data] " + name_ + ": expected data sets of one signature, received " +
                        inputs_[0]->spec().text() + " and " + input->spec().text() +
                        "; map them to one");
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    Bytes most = 0;
    for (const StageRef& input : inputs_) most = std::max(most, input->out_bytes(sizing));
    return most;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    Bytes sum = 0;
    for (const StageRef& input : inputs_) sum += input->floor(sizing);
    return sum;
  }

  bool draws() const override { return !seed_; }
  std::string decides() const override {
    std::string text = stop_ ? "stop" : "";
    for (const double weight : weights_) text += ", " + exact_text(weight);
    return text + (seed_ ? ", seed " + std::to_string(*seed_) : "");
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Sample& node, Run& run, uint64_t epoch)
          : node_(node),
            weights_(node.weights_),
            seed_(node.seed_.value_or(run.seed(node))),
            epoch_(epoch),
            figures_(run.figures(node)) {
        for (const StageRef& input : node.inputs()) inputs_.push_back(input->iterate(run, epoch));
      }
      bool next(Element& out) override {
        out.clear();
        while (!ended_) {
          const size_t chosen = draw();
          if (chosen == inputs_.size()) break;
          if (inputs_[chosen]->next(out)) {
            ++figures_.elements;
            return true;
          }
          weights_[chosen] = 0;
          if (node_.stop_) break;
        }
        ended_ = true;
        return false;
      }

     private:
      // As many as there are: all have ended.
      size_t draw() {
        double sum = 0;
        for (double weight : weights_) sum += weight;
        if (sum <= 0) return inputs_.size();
        double left =
            static_cast<double>(random_key(seed_, epoch_, drawn_++) >> 11) * 0x1p-53 * sum;
        size_t last = 0;
        for (size_t i = 0; i < weights_.size(); ++i) {
          if (weights_[i] <= 0) continue;
          last = i;
          if ((left -= weights_[i]) < 0) return i;
        }
        return last;
      }

      const Sample& node_;
      std::vector<double> weights_;
      const uint64_t seed_, epoch_;
      StageFigures& figures_;
      std::vector<IteratorRef> inputs_;
      uint64_t drawn_ = 0;
      bool ended_ = false;
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  std::vector<double> weights_;
  std::optional<uint64_t> seed_;
  bool stop_;
};

}  // namespace

StageRef permute_stage(StageRef input, std::optional<uint64_t> seed, bool each_epoch) {
  return std::make_shared<Permute>(std::move(input), seed, each_epoch);
}
StageRef buffer_shuffle_stage(StageRef input, int64_t elements, Bytes bytes,
                              std::optional<uint64_t> seed, bool each_epoch) {
  return std::make_shared<BufferShuffle>(std::move(input), elements, bytes, seed, each_epoch);
}
StageRef sample_stage(std::vector<StageRef> inputs, std::vector<double> weights,
                      std::optional<uint64_t> seed, bool stop_on_empty) {
  return std::make_shared<Sample>(std::move(inputs), std::move(weights), seed, stop_on_empty);
}

}  // namespace pl

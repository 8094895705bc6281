// Batches in order, as what training reads.
#include "data/pipeline/dataset_source.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "data/pipeline/element_source.h"

namespace pl {
namespace {

class DatasetSource final : public ElementSource {
 public:
  DatasetSource(const Dataset& dataset, int64_t steps) : ElementSource(dataset, true) {
    const Stage::Rows rows = dataset.stage()->rows();
    if (rows.batch < 1)
      throw UserError(
          "[data] " + name() + ": expected batches of a known number of samples, received " +
          dataset.element_spec().text() + "; end the pipeline with batch()" + " or batch(n, true)");
    batch_ = rows.batch;
    endless_ = rows.endless;
    samples_ = endless_ && steps == 0 ? -1 : rows.samples;
    if (steps > 0 && (endless_ || samples_ < 0)) {
      whole_ = true;
      samples_ = steps * batch_;
    }
    if (samples_ < 0 && endless_)
      throw UserError("[data] " + name() +
                      ": expected to know how many batches an epoch has, received data without "
                      "end; give steps_per_epoch or take(n)");
    if (samples_ < 0) samples_ = count();
    if (samples_ < 1) throw DataError("[data] " + name() + ": expected batches, received none");
    resident_ = dataset.bill();
  }

  int64_t size() const override { return samples_; }
  int64_t batch() const override { return batch_; }
  void begin_epoch(int64_t epoch) override {
    epoch_ = epoch;
    pass_ = 0;
    at_ = -1;
  }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size() && !indices.empty(), "a batch of the data set");
    const int64_t step = indices[0] / batch_, rows = static_cast<int64_t>(indices.size());
    check(indices[0] % batch_ == 0 && indices.back() == indices[0] + rows - 1,
          "a whole batch in order");
    if (step != at_) load(step);
    for (size_t f = 0; f < fields_.size(); ++f) {
      if (in_hand_[f].shape()[0] != rows)
        throw DataError("[data] " + name() + ": expected a batch of " + std::to_string(rows) +
                        " samples, received " + in_hand_[f].meta().text());
      if (destinations[f]) copy(f, in_hand_[f], rows, destinations[f]);
    }
  }

 private:
  // One pass over data of unknown number, before anything is planned: the last batch may be
  // smaller.
  int64_t count() {
    DatasetIterator iterator(dataset_, 0);
    int64_t samples = 0;
    const auto begin = std::chrono::steady_clock::now();
    bool said = false;
    for (Element element; iterator.next(element); element.clear()) {
      if (samples % batch_ != 0)
        throw DataError("[data] " + name() + ": expected batches of " + std::to_string(batch_) +
                        " samples but for the last, received a smaller one before it");
      samples += element[0].shape()[0];
      if (said || std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) continue;
      said = true;
      std::fprintf(stderr,
                   "plimsoll: [data] %s: counting the batches of an epoch, which nobody told; "
                   "assert_cardinality(n) or steps_per_epoch begins at once\n",
                   name().c_str());
    }
    return samples;
  }

  // Data without end are one long pass, epochs follow each other in it. Others start anew.
  void load(int64_t step) {
    in_hand_.clear();
    if (!iterator_) iterator_.emplace(dataset_, 0);
    const bool follows = step == at_ + 1 && running_ == epoch_;
    if (whole_ && endless_) {
      const int64_t place = std::max<int64_t>(0, epoch_ - 1) * (samples_ / batch_) + step;
      if (place < iterator_->delivered()) iterator_->start(0);
      iterator_->advance(place - iterator_->delivered());
    } else if (!follows || at_ < 0) {
      if (running_ == epoch_ && step == 0 && at_ >= 0) ++pass_;
      iterator_->start(static_cast<uint64_t>(epoch_) + (static_cast<uint64_t>(pass_) << 32));
      iterator_->advance(step);
    }
    running_ = epoch_;
    at_ = -1;
    if (!iterator_->next(in_hand_))
      throw DataError("[data] " + name() + ": expected batch " + std::to_string(step) +
                      " of the epoch, received the end of the data; lower steps_per_epoch or " +
                      "repeat() them");
    at_ = step;
  }

  int64_t batch_ = 0, samples_ = 0;
  bool endless_ = false, whole_ = false;
  std::optional<DatasetIterator> iterator_;  // made at the first read
  Element in_hand_;
  int64_t epoch_ = 0, running_ = -1, pass_ = 0, at_ = -1;  // at_: the batch in hand
};

}  // namespace

std::unique_ptr<Source> dataset_source(const Dataset& dataset, int64_t steps) {
  return std::make_unique<DatasetSource>(dataset, steps);
}

}  // namespace pl

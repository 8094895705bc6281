// padded_batch and bucket_by_sequence_length: elements of different lengths in one batch.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "data/pipeline/groups.h"
#include "data/pipeline/padding.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

class PaddedBatch final : public Stage {
 public:
  PaddedBatch(StageRef input, int64_t size, bool drop, PadFacts facts)
      : Stage("padded_batch", {std::move(input)}),
        size_(size),
        drop_(drop),
        max_bytes_(facts.max_bytes),
        padding_(padding_of(name_, this->input().spec(), facts)) {
    const int64_t count = this->input().cardinality();
    const bool whole = drop || count == kInfiniteCardinality || (count > 0 && count % size == 0);
    spec_ = with_front(padding_.row, whole ? size : kUnknown);
    cardinality_ = groups(count, size, drop);
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    if (padding_.row.known()) return rows_bytes(padding_.row, most_rows());
    return max_bytes_ > 0 ? granted(max_bytes_) : times(most_rows(), input().out_bytes(sizing));
  }
  int64_t most_rows() const {
    const int64_t count = input().cardinality();
    return count >= 0 ? std::clamp<int64_t>(count, 1, size_) : size_;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + times(most_rows() - 1, input().out_bytes(sizing)) +
           out_bytes(sizing);
  }
  Rows rows() const override { return rows_of(input().cardinality(), size_, drop_); }
  std::string options() const override {
    return std::to_string(size_) + (drop_ ? ", drop_remainder" : "");
  }
  std::string decides() const override { return options() + padding_.text(); }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const PaddedBatch& node, Run& run, uint64_t epoch)
          : node_(node),
            input_(node.input().iterate(run, epoch)),
            bound_(node.out_bytes(run.sizing())),
            figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        pass();
        std::vector<Element> rows;
        left_ = node_.size_;  // as batch: one with an element that fails is lost as a whole
        for (Element in; left_-- > 0 && input_->next(in);) rows.push_back(std::move(in));
        left_ = 0;
        if (rows.empty() || (node_.drop_ && static_cast<int64_t>(rows.size()) < node_.size_))
          return false;
        out = pad_rows(node_.name(), node_.padding_, rows, bound_);
        ++figures_.elements;
        return true;
      }
      int64_t advance(int64_t count) override {
        pass();
        if (count > INT64_MAX / node_.size_) count = INT64_MAX / node_.size_;
        return groups(input_->advance(count * node_.size_), node_.size_, node_.drop_);
      }

     private:
      void pass() {
        if (left_ > 0) input_->advance(std::exchange(left_, 0));
      }
      const PaddedBatch& node_;
      IteratorRef input_;
      const Bytes bound_;
      StageFigures& figures_;
      int64_t left_ = 0;  // elements of a batch that failed
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  int64_t size_;
  bool drop_;
  Bytes max_bytes_;
  Padding padding_;
};

// Elements wait in the bucket of their length until it holds a batch. At the end come the batches
// that are not whole, from the shortest on.
class Buckets final : public Stage {
 public:
  Buckets(StageRef input, BucketFacts facts)
      : Stage("bucket_by_sequence_length", {std::move(input)}),
        facts_(std::move(facts)),
        padding_(padding_of(name_, this->input().spec(), facts_.pad)) {
    const auto& sizes = facts_.batch_sizes;
    const bool one_size =
        std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
    spec_ = with_front(padding_.row, one_size && facts_.drop ? sizes[0] : kUnknown);
    if (this->input().cardinality() == 0) cardinality_ = 0;
    if (this->input().cardinality() == kInfiniteCardinality) cardinality_ = kInfiniteCardinality;
  }

  // Rows of bucket b: unknown dimensions are as long as its lengths are, if batches are padded to
  // that.
  Padding padding(size_t b) const {
    Padding padding = padding_;
    if (!facts_.to_boundary || b >= facts_.boundaries.size()) return padding;
    for (FieldSpec& field : padding.row.fields)
      for (int axis = 0; axis < field.shape.rank(); ++axis)
        if (field.shape[axis] == kUnknown) field.shape[axis] = facts_.boundaries[b] - 1;
    return padding;
  }
  Bytes row_bytes(size_t b, const Sizing& sizing) const {
    const ElementSpec row = padding(b).row;
    const Bytes most = input().out_bytes(sizing);
    return facts_.to_boundary && row.known() ? std::min(most, granted(row)) : most;
  }
  Bytes batch_bytes(size_t b, const Sizing& sizing) const {
    const ElementSpec row = padding(b).row;
    if (row.known()) return rows_bytes(row, facts_.batch_sizes[b]);
    if (facts_.pad.max_bytes > 0) return granted(facts_.pad.max_bytes);
    return times(facts_.batch_sizes[b], input().out_bytes(sizing));
  }
  // With batches padded to the boundary nothing comes into the last bucket.
  size_t used() const { return facts_.boundaries.size() + (facts_.to_boundary ? 0 : 1); }

  Bytes out_bytes(const Sizing& sizing) const override {
    Bytes most = 0;
    for (size_t b = 0; b < used(); ++b) most = std::max(most, batch_bytes(b, sizing));
    return most;
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    Bytes held = 0;
    for (size_t b = 0; b < used(); ++b)
      held += times(facts_.batch_sizes[b] - 1, row_bytes(b, sizing));
    return input().floor(sizing) + held + out_bytes(sizing);
  }
  std::string options() const override {
    std::string text;
    for (size_t b = 0; b < used(); ++b) {
      if (b > 0) text += ", ";
      if (b < facts_.boundaries.size()) text += "<" + std::to_string(facts_.boundaries[b]) + ": ";
      text += std::to_string(facts_.batch_sizes[b]);
    }
    return text + (facts_.to_boundary ? ", to boundary" : "") + (facts_.drop ? ", drop" : "");
  }
  std::string decides() const override {
    return options() + (facts_.no_padding ? ", no padding" : "") + padding_.text();
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override;

 private:
  friend class BucketIterator;
  BucketFacts facts_;
  Padding padding_;
};

class BucketIterator final : public Iterator {
 public:
  BucketIterator(const Buckets& node, Run& run, uint64_t epoch)
      : node_(node),
        run_(run),
        input_(node.inputs()[0]->iterate(run, epoch)),
        figures_(run.figures(node)),
        waiting_(node.used()) {}
  bool next(Element& out) override {
    out.clear();
    std::vector<Element> rows;
    size_t bucket = 0;
    if (!gather(rows, bucket)) return false;
    if (node_.facts_.no_padding) expect_one_shape(rows);
    out = pad_rows(node_.name(), node_.padding(bucket), rows,
                   node_.batch_bytes(bucket, run_.sizing()));
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    int64_t done = 0;
    size_t bucket = 0;
    for (std::vector<Element> rows; done < count; ++done) {
      try {
        if (!gather(rows, bucket)) break;
      } catch (const DataError&) {  // its place is one
      }
    }
    return done;
  }

 private:
  bool gather(std::vector<Element>& rows, size_t& bucket) {
    rows.clear();
    Element in;
    while (!ended_) {
      if (!input_->next(in)) {
        ended_ = true;
        break;
      }
      bucket = bucket_of(in);
      waiting_[bucket].push_back(std::move(in));
      held(+1);
      if (static_cast<int64_t>(waiting_[bucket].size()) < node_.facts_.batch_sizes[bucket])
        continue;
      return hand_over(rows, bucket);
    }
    for (; !node_.facts_.drop && flushed_ < waiting_.size(); ++flushed_)
      if (!waiting_[flushed_].empty()) return hand_over(rows, bucket = flushed_);
    return false;
  }
  bool hand_over(std::vector<Element>& rows, size_t bucket) {
    rows = std::exchange(waiting_[bucket], {});
    held(-static_cast<int64_t>(rows.size()));
    return true;
  }
  size_t bucket_of(const Element& in) {
    const int64_t place = at_++;
    return guarded(node_.name(), place, [&] {
      const int64_t length = node_.facts_.length(in);
      const auto& boundaries = node_.facts_.boundaries;
      const auto bucket = static_cast<size_t>(
          std::upper_bound(boundaries.begin(), boundaries.end(), length) - boundaries.begin());
      if (length < 0 || bucket >= waiting_.size())
        throw DataError("expected a length from 0 to " + std::to_string(boundaries.back() - 1) +
                        ", received " + std::to_string(length) +
                        "; with pad_to_bucket_boundary nothing is longer than the last boundary");
      if (const Bytes most = node_.row_bytes(bucket, run_.sizing()); granted(in) > most)
        throw DataError("expected an element of length " + std::to_string(length) +
                        " to take at most " + format_bytes(most) + ", received " +
                        format_bytes(granted(in)) + "; give what is in front a larger max_bytes");
      return bucket;
    });
  }
  void expect_one_shape(const std::vector<Element>& rows) const {
    for (const Element& row : rows)
      for (size_t f = 0; f < row.size(); ++f)
        if (row[f].meta() != rows[0][f].meta())
          throw DataError(
              "[data] " + node_.name() + ": expected rows of one shape with no_padding, received " +
              rows[0][f].meta().text() + " and " + row[f].meta().text() + "; leave no_padding out");
  }
  void held(int64_t change) {
    held_ += change;
    if (held_ > figures_.held_peak) figures_.held_peak = held_;
  }

  const Buckets& node_;
  Run& run_;
  IteratorRef input_;
  StageFigures& figures_;
  std::vector<std::vector<Element>> waiting_;
  size_t flushed_ = 0;
  int64_t at_ = 0, held_ = 0;
  bool ended_ = false;
};

IteratorRef Buckets::iterate(Run& run, uint64_t epoch) const {
  return std::make_unique<BucketIterator>(*this, run, epoch);
}

std::string numbers_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

}  // namespace

StageRef padded_batch_stage(StageRef input, int64_t size, bool drop_remainder, PadFacts facts) {
  expect_positive("padded_batch", "batch_size", size);
  return std::make_shared<PaddedBatch>(std::move(input), size, drop_remainder, std::move(facts));
}

StageRef bucket_stage(StageRef input, BucketFacts facts) {
  constexpr const char* kStage = "bucket_by_sequence_length";
  const auto& boundaries = facts.boundaries;
  const bool rising = std::adjacent_find(boundaries.begin(), boundaries.end(),
                                         std::greater_equal<>()) == boundaries.end();
  if (boundaries.empty() || boundaries[0] < 1 || !rising)
    throw UserError("[data] " + std::string(kStage) +
                    ": expected bucket_boundaries of 1 or more, each above the last, received " +
                    numbers_text(boundaries));
  if (facts.batch_sizes.size() != boundaries.size() + 1)
    throw UserError("[data] " + std::string(kStage) +
                    ": bucket_batch_sizes: expected one more than boundaries, " +
                    std::to_string(boundaries.size() + 1) + ", received " +
                    std::to_string(facts.batch_sizes.size()));
  for (const int64_t size : facts.batch_sizes) expect_positive(kStage, "bucket_batch_sizes", size);
  return std::make_shared<Buckets>(std::move(input), std::move(facts));
}

}  // namespace pl

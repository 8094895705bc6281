// padded_batch and bucket_by_sequence_length: elements of different lengths in one batch.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "base/error.h"
#include "data/pipeline/groups.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

template <class T>
void fill_with(void* to, int64_t count, double value) {
  std::fill_n(static_cast<T*>(to), count, static_cast<T>(value));
}

void fill_value(Tensor& tensor, double value) {
  const int64_t count = tensor.shape().elements();
  switch (tensor.dtype()) {
    case Dtype::float32:
      return fill_with<float>(tensor.data(), count, value);
    case Dtype::float64:
      return fill_with<double>(tensor.data(), count, value);
    case Dtype::int32:
      return fill_with<int32_t>(tensor.data(), count, value);
    case Dtype::int64:
      return fill_with<int64_t>(tensor.data(), count, value);
    case Dtype::uint8:
    case Dtype::boolean:
      return fill_with<uint8_t>(tensor.data(), count, value);
    default:
      std::memset(tensor.data(), 0, static_cast<size_t>(tensor.meta().bytes()));
  }
}

// Copies `from` into the corner of row `to`, whose shape is at least as large along every axis.
void copy_corner(const char* from, const Shape& small, char* to, const Shape& large, int axis,
                 Bytes size) {
  if (axis == small.rank()) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return;
  }
  Bytes from_step = size, to_step = size;
  for (int a = axis + 1; a < small.rank(); ++a) {
    from_step *= small[a];
    to_step *= large[a];
  }
  if (axis + 1 == small.rank()) {
    std::memcpy(to, from, static_cast<size_t>(size * small[axis]));
    return;
  }
  for (Dim i = 0; i < small[axis]; ++i)
    copy_corner(from + i * from_step, small, to + i * to_step, large, axis + 1, size);
}

// What rows become: their shapes, kUnknown for the longest among them, and what is beyond them.
struct Padding {
  ElementSpec row;
  std::vector<double> values;

  std::string text() const {
    std::string text;
    for (const double value : values) text += ", padding " + exact_text(value);
    return text;
  }
};

// Whether a number is one of that dtype.
bool representable(Dtype dtype, double value) {
  const auto whole = [value](double low, double high) {
    return value == std::floor(value) && value >= low && value <= high;
  };
  switch (dtype) {
    case Dtype::float32:
    case Dtype::float64:
      return true;
    case Dtype::int32:
      return whole(-0x1p31, 0x1p31 - 1);
    case Dtype::int64:
      return whole(-0x1p63, 0x1p63 - 1024);
    case Dtype::uint8:
      return whole(0, 255);
    case Dtype::boolean:
      return whole(0, 1);
    default:
      return value == 0;
  }
}

Padding padding_of(const std::string& stage, const ElementSpec& in, PadFacts& facts) {
  Padding padding{in, std::move(facts.values)};
  const auto expect_few = [&](const char* what, size_t given) {
    if (given > in.fields.size())
      throw UserError("[data] " + stage + ": " + what + ": expected at most one for each field, " +
                      std::to_string(in.fields.size()) + ", received " + std::to_string(given));
  };
  expect_few("padded_shapes", facts.shapes.size());
  expect_few("padding_values", padding.values.size());
  for (size_t f = 0; f < facts.shapes.size(); ++f) {
    bool right = facts.shapes[f].rank() == in.fields[f].shape.rank();
    for (const Dim dim : facts.shapes[f]) right = right && (dim >= 0 || dim == kUnknown);
    if (!right)
      throw UserError("[data] " + stage + ": padded_shapes: expected a shape like " +
                      in.fields[f].text() + ", received " + facts.shapes[f].text() +
                      "; kUnknown is the longest of a batch");
    padding.row.fields[f].shape = facts.shapes[f];
  }
  for (size_t f = 0; f < padding.values.size(); ++f)
    if (!representable(in.fields[f].dtype, padding.values[f]))
      throw UserError("[data] " + stage + ": padding_values: expected a number of " +
                      in.fields[f].text() + ", received " + exact_text(padding.values[f]) +
                      "; give a whole one, or map the field to float32");
  return padding;
}

Shape padded_shape(const std::string& stage, const FieldSpec& field, size_t f,
                   const std::vector<Element>& rows) {
  Shape shape = field.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    Dim longest = 0;
    for (const Element& row : rows) longest = std::max(longest, row[f].shape()[axis]);
    if (shape[axis] == kUnknown) shape[axis] = longest;
    if (shape[axis] < longest)
      throw DataError("[data] " + stage + ": " + field.name + ": expected at most " +
                      std::to_string(shape[axis]) + " along axis " + std::to_string(axis) +
                      ", received " + std::to_string(longest) + "; raise padded_shapes");
  }
  return shape;
}

// One batch, of at most `bound` bytes.
Element pad_rows(const std::string& stage, const Padding& padding, const std::vector<Element>& rows,
                 Bytes bound) {
  std::vector<Shape> shapes;
  Bytes bytes = 0;
  for (size_t f = 0; f < padding.row.fields.size(); ++f) {
    const FieldSpec& field = padding.row.fields[f];
    shapes.push_back(padded_shape(stage, field, f, rows).with_front(static_cast<Dim>(rows.size())));
    bytes += granted(Meta{field.dtype, shapes.back()}.bytes());
  }
  if (bytes > bound)
    throw DataError("[data] " + stage + ": expected a batch of at most " + format_bytes(bound) +
                    ", received " + format_bytes(bytes) + "; raise its max_bytes");
  Element out;
  for (size_t f = 0; f < shapes.size(); ++f) {
    Tensor& tensor = out.emplace_back(Meta{padding.row.fields[f].dtype, shapes[f]});
    fill_value(tensor, f < padding.values.size() ? padding.values[f] : 0);
    const Shape row = shapes[f].without_front();
    const Bytes size = size_of(tensor.dtype()), step = Meta{tensor.dtype(), row}.bytes();
    char* to = tensor.data_as<char>();
    for (const Element& element : rows) {
      if (element[f].shape().elements() > 0)
        copy_corner(element[f].data_as<char>(), element[f].shape(), to, row, 0, size);
      to += step;
    }
  }
  return out;
}

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
        std::vector<Element> rows;
        Element in;
        while (static_cast<int64_t>(rows.size()) < node_.size_ && input_->next(in))
          rows.push_back(std::move(in));
        if (rows.empty() || (node_.drop_ && static_cast<int64_t>(rows.size()) < node_.size_))
          return false;
        out = pad_rows(node_.name(), node_.padding_, rows, bound_);
        ++figures_.elements;
        return true;
      }
      int64_t advance(int64_t count) override {
        if (count > INT64_MAX / node_.size_) count = INT64_MAX / node_.size_;
        return groups(input_->advance(count * node_.size_), node_.size_, node_.drop_);
      }

     private:
      const PaddedBatch& node_;
      IteratorRef input_;
      const Bytes bound_;
      StageFigures& figures_;
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
    for (std::vector<Element> rows; done < count && gather(rows, bucket);) ++done;
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
          throw DataError("[data] " + node_.name() +
                          ": expected rows of one shape with no_padding, received " +
                          rows[0][f].meta().text() + " and " + row[f].meta().text() +
                          "; leave no_padding out");
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

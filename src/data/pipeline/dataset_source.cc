#include "data/pipeline/dataset_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"

namespace pl {
namespace {

int64_t integer_at(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::int32:
      return static_cast<const int32_t*>(data)[i];
    case Dtype::int64:
      return static_cast<const int64_t*>(data)[i];
    default:
      return static_cast<const uint8_t*>(data)[i];
  }
}

struct Limit {
  std::string what;
  int64_t count = 0;
  std::optional<int64_t> allowed;
};

class DatasetSource final : public Source {
 public:
  DatasetSource(const Dataset& dataset, int64_t steps) : dataset_(dataset) {
    read_fields();
    const Stage::Rows rows = dataset.stage()->rows();
    if (rows.batch < 1)
      throw UserError("[data] " + dataset.stage()->name() +
                      ": expected batches of a known number of samples, received " +
                      dataset.element_spec().text() + "; end the pipeline with batch()" +
                      " or batch(n, true)");
    batch_ = rows.batch;
    endless_ = rows.endless;
    samples_ = rows.samples;
    if (endless_ && steps == 0) samples_ = -1;
    if (steps > 0 && (endless_ || samples_ < 0)) {
      whole_ = true;
      samples_ = steps * batch_;
    }
    if (samples_ < 0)
      throw UserError("[data] " + dataset.stage()->name() +
                      ": expected to know how many batches an epoch has, received data " +
                      (endless_ ? "without end" : "of unknown number") +
                      "; give steps_per_epoch, take(n) or assert_cardinality(n)");
    if (samples_ < 1)
      throw DataError("[data] " + dataset.stage()->name() + ": expected batches, received none");
    resident_ = dataset.bill();
  }

  std::string name() const override { return dataset_.stage()->name(); }
  int64_t size() const override { return samples_; }
  const std::vector<Field>& fields() const override { return fields_; }
  Bytes resident_bytes() const override { return resident_; }
  int64_t batch() const override { return batch_; }

  void begin_epoch(int64_t epoch) override {
    epoch_ = epoch;
    pass_ = 0;
    at_ = -1;
  }
  bool require_below(size_t field, const std::string& what, int64_t count,
                     std::optional<int64_t> allowed) override {
    limits_[field] = Limit{what, count, allowed};
    return true;
  }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size() && !indices.empty(), "a batch of the data set");
    const int64_t step = indices[0] / batch_;
    check(indices[0] % batch_ == 0 && indices.back() == indices[0] + rows(indices) - 1,
          "a whole batch in order");
    if (step != at_) load(step);
    for (size_t f = 0; f < fields_.size(); ++f)
      if (destinations[f]) copy(f, rows(indices), destinations[f]);
  }

 private:
  static int64_t rows(std::span<const int64_t> indices) {
    return static_cast<int64_t>(indices.size());
  }

  void read_fields() {
    const ElementSpec& spec = dataset_.element_spec();
    if (spec.fields.empty() || spec.fields.size() > 3)
      throw UserError("[data] " + name() +
                      ": expected x, or x and y, or x, y and sample weights, received " +
                      spec.text());
    for (size_t f = 0; f < spec.fields.size(); ++f) {
      const FieldSpec& given = spec.fields[f];
      Field field{.name = given.name, .sample = {}, .range = {}, .role = static_cast<Role>(f)};
      if (given.shape.rank() < 1)
        throw UserError("[data] " + name() + ": expected batches, received " + given.text() +
                        "; end the pipeline with batch()");
      field.sample = {given.dtype, given.shape.without_front()};
      for (Dim dim : field.sample.shape)
        if (dim == kUnknown)
          throw UserError("[data] " + name() + ": expected samples of one known shape, received " +
                          given.text() + "; pad or resize to one");
      if (field.role == Role::y && !is_floating(given.dtype)) {
        if (field.sample.shape == Shape{1}) field.sample.shape = Shape();
        field.sample.dtype = Dtype::int32;
      }
      fields_.push_back(std::move(field));
    }
    limits_.resize(fields_.size());
  }

  // Data without end are one long pass, epochs follow each other in it. Others start anew.
  void load(int64_t step) {
    batch_in_hand_.clear();
    if (!iterator_) iterator_.emplace(dataset_, 0);
    const bool follows = step == at_ + 1 && running_ == epoch_;
    if (whole_ && endless_) {
      const int64_t place = std::max<int64_t>(0, epoch_ - 1) * (samples_ / batch_) + step;
      if (iterator_->epoch() != 0 || place < iterator_->delivered()) iterator_->start(0);
      iterator_->advance(place - iterator_->delivered());
    } else if (!follows || at_ < 0) {
      if (running_ == epoch_ && step == 0 && at_ >= 0) ++pass_;
      iterator_->start(static_cast<uint64_t>(epoch_) + (static_cast<uint64_t>(pass_) << 32));
      iterator_->advance(step);
    }
    running_ = epoch_;
    at_ = -1;
    if (!iterator_->next(batch_in_hand_))
      throw DataError("[data] " + name() + ": expected batch " + std::to_string(step) +
                      " of the epoch, received the end of the data; lower steps_per_epoch or " +
                      "repeat() them");
    at_ = step;
  }

  void copy(size_t f, int64_t count, void* to) const {
    const Tensor& tensor = batch_in_hand_[f];
    const Field& field = fields_[f];
    if (tensor.shape()[0] != count)
      throw DataError("[data] " + name() + ": expected a batch of " + std::to_string(count) +
                      " samples, received " + tensor.meta().text());
    const int64_t elements = count * field.sample.elements();
    if (limits_[f].count > 0) check_limit(limits_[f], tensor, elements);
    if (tensor.dtype() == field.sample.dtype) {
      std::memcpy(to, tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
      return;
    }
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
      if (value < std::numeric_limits<int32_t>::min() ||
          value > std::numeric_limits<int32_t>::max())
        throw DataError("[data] " + name() + ": " + field.name +
                        ": expected labels below 2^31, received " + std::to_string(value));
      static_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
    }
  }

  void check_limit(const Limit& limit, const Tensor& tensor, int64_t elements) const {
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
      if ((value >= 0 && value < limit.count) || value == limit.allowed) continue;
      throw DataError("[data] " + name() + ": expected " + limit.what + " from 0 to " +
                      std::to_string(limit.count - 1) + ", received " + std::to_string(value));
    }
  }

  const Dataset dataset_;
  std::vector<Field> fields_;
  std::vector<Limit> limits_;
  int64_t batch_ = 0, samples_ = 0;
  bool endless_ = false, whole_ = false;
  Bytes resident_ = 0;
  std::optional<DatasetIterator> iterator_;  // made at the first read
  Element batch_in_hand_;
  int64_t epoch_ = 0, running_ = -1, pass_ = 0, at_ = -1;  // at_: the batch in hand
};

}  // namespace

std::unique_ptr<Source> dataset_source(const Dataset& dataset, int64_t steps) {
  return std::make_unique<DatasetSource>(dataset, steps);
}

}  // namespace pl

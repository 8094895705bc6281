#include "data/tensor_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace pl {
namespace {

int64_t integer_at(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case Dtype::int32:
      return tensor.data_as<int32_t>()[i];
    case Dtype::int64:
      return tensor.data_as<int64_t>()[i];
    default:
      return tensor.data_as<uint8_t>()[i];
  }
}

// One field: the tensor and what a sample of it is, whose dtype is int32 where y has integers.
struct Column {
  Tensor tensor;
  Field field;
  int64_t row_elements = 0;

  void read_row(int64_t row, void* to) const {
    const Bytes bytes = row_elements * size_of(tensor.dtype());
    if (field.range) check_row(row);
    if (tensor.dtype() == field.sample.dtype) {
      std::memcpy(to, tensor.data_as<char>() + row * bytes, static_cast<size_t>(bytes));
      return;
    }
    for (int64_t i = 0; i < row_elements; ++i)
      static_cast<int32_t*>(to)[i] =
          static_cast<int32_t>(integer_at(tensor, row * row_elements + i));
  }

  // The tensor may have changed since the scan; kernels index with these values.
  void check_row(int64_t row) const {
    for (int64_t i = 0; i < row_elements; ++i) {
      const int64_t value = integer_at(tensor, row * row_elements + i);
      if (value < field.range->low || value > field.range->high)
        throw DataError("[data] tensor " + field.name + ": expected values from " +
                        std::to_string(field.range->low) + " to " +
                        std::to_string(field.range->high) + " as at first, received " +
                        std::to_string(value));
    }
  }

  void scan() {
    ValueRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    for (int64_t i = 0; i < tensor.shape().elements(); ++i) {
      const int64_t value = integer_at(tensor, i);
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
    field.range = range;
  }
};

class TensorSource : public Source {
 public:
  explicit TensorSource(std::vector<Column> columns) : columns_(std::move(columns)) {
    size_ = columns_[0].tensor.shape()[0];
    for (const Column& column : columns_) fields_.push_back(column.field);
  }
  std::string name() const override { return "tensors"; }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == columns_.size(), "one destination for each field");
    for (size_t f = 0; f < columns_.size(); ++f) {
      char* to = static_cast<char*>(destinations[f]);
      if (!to) continue;
      const Bytes row = fields_[f].sample.bytes();
      for (int64_t index : indices) {
        check(index >= 0 && index < size_, "an index of the source");
        columns_[f].read_row(index, to);
        to += row;
      }
    }
  }

  Bytes resident_bytes() const override {
    Bytes bytes = 4 * kKiB;
    for (const Column& column : columns_) bytes += column.tensor.meta().bytes();
    return bytes;
  }

 private:
  std::vector<Column> columns_;
  std::vector<Field> fields_;
  int64_t size_ = 0;
};

Column make_column(const std::string& name, Tensor tensor) {
  const std::string what = "[data] tensor " + name;
  if (!tensor.defined()) throw DataError(what + ": expected values, received an empty tensor");
  tensor.data();  // a symbol is refused here
  if (tensor.shape().rank() < 1 || tensor.shape().elements() < 1)
    throw DataError(what + ": expected samples along the first dimension, received " +
                    tensor.meta().text());
  Column column;
  column.field = {name, {tensor.dtype(), tensor.shape().without_front()}, std::nullopt};
  column.row_elements = column.field.sample.elements();
  column.tensor = std::move(tensor);
  if (column.tensor.dtype() == Dtype::int32 || column.tensor.dtype() == Dtype::int64) column.scan();
  return column;
}

void finish_labels(Column& y) {
  y.field.role = Role::y;
  if (is_floating(y.tensor.dtype())) return;
  y.scan();
  const ValueRange& range = *y.field.range;
  if (range.low < std::numeric_limits<int32_t>::min() ||
      range.high > std::numeric_limits<int32_t>::max())
    throw DataError("[data] tensor " + y.field.name + ": expected labels within int32, received " +
                    std::to_string(range.low) + " to " + std::to_string(range.high));
  y.field.sample.dtype = Dtype::int32;
}

// Another source's samples, with indices moved a stack's worth at a time.
class RangeSource : public Source {
 public:
  RangeSource(Source& source, int64_t begin, int64_t size)
      : source_(source), begin_(begin), size_(size) {
    check(begin >= 0 && size >= 1 && begin + size <= source.size(), "a range of the source");
    places_.resize(source.fields().size());
  }
  std::string name() const override { return source_.name(); }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return source_.fields(); }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == places_.size(), "one destination for each field");
    each_part(indices, [&](size_t done, std::span<const int64_t> moved) {
      for (size_t f = 0; f < destinations.size(); ++f)
        places_[f] = destinations[f] ? static_cast<char*>(destinations[f]) +
                                           static_cast<Bytes>(done) * fields()[f].sample.bytes()
                                     : nullptr;
      source_.read(moved, places_);
    });
  }

  void expect(std::span<const int64_t> indices) override {
    each_part(indices, [&](size_t, std::span<const int64_t> moved) { source_.expect(moved); });
  }

  Bytes resident_bytes() const override { return 1 * kKiB; }  // the whole source is on the bill

 private:
  // use(how many before, indices of the other source).
  template <class Use>
  void each_part(std::span<const int64_t> indices, const Use& use) const {
    std::array<int64_t, 256> moved;
    for (size_t done = 0; done < indices.size(); done += moved.size()) {
      const auto part = indices.subspan(done, std::min(moved.size(), indices.size() - done));
      for (size_t i = 0; i < part.size(); ++i) {
        check(part[i] >= 0 && part[i] < size_, "an index of the source");
        moved[i] = part[i] + begin_;
      }
      use(done, {moved.data(), part.size()});
    }
  }

  Source& source_;
  int64_t begin_, size_;
  std::vector<void*> places_;
};

}  // namespace

std::unique_ptr<Source> tensor_source(const std::vector<NamedTensor>& x,
                                      const std::vector<NamedTensor>& y,
                                      const std::vector<NamedTensor>& weights) {
  check(!x.empty(), "at least one input");
  std::vector<Column> columns;
  for (const auto& [name, values] : x) columns.push_back(make_column(name, values));
  for (const auto& [name, values] : y)
    finish_labels(columns.emplace_back(make_column(name, values)));
  for (const auto& [name, values] : weights) {
    Column& column = columns.emplace_back(make_column(name, values));
    column.field.role = Role::weight;
    if (!is_floating(column.field.sample.dtype))
      throw DataError("[data] tensor " + name + ": expected floating weights, received " +
                      values.meta().text());
  }
  for (const Column& column : columns)
    if (column.tensor.shape()[0] != columns[0].tensor.shape()[0])
      throw DataError("[data] expected as many " +
                      std::string(column.field.role == Role::y        ? "targets"
                                  : column.field.role == Role::weight ? "weights"
                                                                      : "samples of each input") +
                      " as samples, received " + columns[0].field.name + " " +
                      columns[0].tensor.shape().text() + " and " + column.field.name + " " +
                      column.tensor.shape().text());
  return std::make_unique<TensorSource>(std::move(columns));
}

std::unique_ptr<Source> tensor_source(Tensor x, Tensor y) {
  return tensor_source({{"x", std::move(x)}}, {{"y", std::move(y)}});
}

std::unique_ptr<Source> tensor_source(Tensor x) { return tensor_source({{"x", std::move(x)}}, {}); }

std::unique_ptr<Source> range_source(Source& source, int64_t begin, int64_t size) {
  return std::make_unique<RangeSource>(source, begin, size);
}

}  // namespace pl

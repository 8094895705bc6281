#include "data/array_source.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace pl {
namespace {

constexpr int64_t kChunk = 512;  // elements converted at a time, on the stack

// Arrays up to this size are held: labels of a byte or so would cost a system call each. It is part
// of resident_bytes().
constexpr Bytes kHeld = 256 * kKiB;

template <class T>
bool widen_as(const void* raw, int64_t count, int64_t* out) {
  bool fits = true;
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(raw) + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    if constexpr (sizeof(T) == 8 && !std::is_signed_v<T>) fits &= value <= T{INT64_MAX};
    out[i] = static_cast<int64_t>(value);
  }
  return fits;
}

// False when a value does not fit into int64.
bool widen(Stored stored, const void* raw, int64_t count, int64_t* out) {
  switch (stored) {
    case Stored::boolean:
    case Stored::uint8:
      return widen_as<uint8_t>(raw, count, out);
    case Stored::int8:
      return widen_as<int8_t>(raw, count, out);
    case Stored::int16:
      return widen_as<int16_t>(raw, count, out);
    case Stored::uint16:
      return widen_as<uint16_t>(raw, count, out);
    case Stored::int32:
      return widen_as<int32_t>(raw, count, out);
    case Stored::uint32:
      return widen_as<uint32_t>(raw, count, out);
    case Stored::int64:
      return widen_as<int64_t>(raw, count, out);
    case Stored::uint64:
      return widen_as<uint64_t>(raw, count, out);
    default:
      check(false, "only integers are converted");
      return false;
  }
}

template <class T>
void narrow_as(const int64_t* values, int64_t count, void* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(static_cast<char*>(out) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

// The caller has checked that the values fit.
void narrow(Dtype dtype, const int64_t* values, int64_t count, void* out) {
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::uint8:
      return narrow_as<uint8_t>(values, count, out);
    case Dtype::int32:
      return narrow_as<int32_t>(values, count, out);
    case Dtype::int64:
      return narrow_as<int64_t>(values, count, out);
    default:
      check(false, "only integers are converted");
  }
}

// One field: an array, what a sample of it is, and how the bytes get there.
struct Column {
  DiskArray array;
  Field field;
  int64_t row_elements = 0;
  bool direct = false;     // bytes go from the file into place as they are
  std::vector<char> held;  // all of a small array; else empty

  void hold() {
    const Bytes bytes = array.shape[0] * row_elements * size_of(array.stored);
    if (bytes > kHeld) return;
    std::vector<char> all(static_cast<size_t>(bytes));
    array.file->pread_exact(all.data(), bytes, array.data_at);
    held = std::move(all);
  }

  void fetch(void* destination, Bytes bytes, ByteOffset at) const {
    if (held.empty())
      array.file->pread_exact(destination, bytes, array.data_at + at);
    else
      std::memcpy(destination, held.data() + at, static_cast<size_t>(bytes));
  }

  DataError outside(const std::string& expected) const {
    return DataError("[data] " + array.what + ": expected " + expected +
                     ", received a value outside; mend the data");
  }

  // Calls `use(values, count, first element)` for all integers of a run of rows.
  template <class Use>
  void each_chunk(int64_t first_row, int64_t rows, Use use) const {
    alignas(8) unsigned char raw[kChunk * 8];
    int64_t values[kChunk];
    const Bytes size = size_of(array.stored);
    const int64_t begin = first_row * row_elements, total = rows * row_elements;
    for (int64_t done = 0; done < total; done += kChunk) {
      const int64_t count = std::min(kChunk, total - done);
      fetch(raw, count * size, (begin + done) * size);
      if (!widen(array.stored, raw, count, values)) throw outside("values below 2^63");
      use(values, count, done);
    }
  }

  ValueRange scan() const {
    ValueRange range{INT64_MAX, INT64_MIN};
    each_chunk(0, array.shape[0], [&](const int64_t* values, int64_t count, int64_t) {
      const auto [low, high] = std::minmax_element(values, values + count);
      range.low = std::min(range.low, *low);
      range.high = std::max(range.high, *high);
    });
    return row_elements > 0 ? range : ValueRange{};
  }

  // The file may have changed since the scan; kernels index with these values.
  void check_range(const int64_t* values, int64_t count) const {
    const ValueRange& range = *field.range;
    for (int64_t i = 0; i < count; ++i)
      if (values[i] < range.low || values[i] > range.high)
        throw outside("values from " + std::to_string(range.low) + " to " +
                      std::to_string(range.high) + " as when the file was opened");
  }

  void read_rows(int64_t first, int64_t rows, char* destination) const {
    const Bytes size = size_of(field.sample.dtype);
    if (direct) {
      const Bytes row = row_elements * size;
      fetch(destination, rows * row, first * row);
      return;
    }
    each_chunk(first, rows, [&](const int64_t* values, int64_t count, int64_t at) {
      check_range(values, count);
      narrow(field.sample.dtype, values, count, destination + at * size);
    });
  }
};

class ArraySource : public Source {
 public:
  ArraySource(std::string name, std::vector<Column> columns)
      : name_(std::move(name)), size_(columns[0].array.shape[0]), columns_(std::move(columns)) {
    for (const Column& column : columns_) fields_.push_back(column.field);
  }

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == columns_.size(), "one destination for each field");
    for (int64_t index : indices) check(index >= 0 && index < size_, "an index of the source");
    for (size_t f = 0; f < columns_.size(); ++f) {
      char* to = static_cast<char*>(destinations[f]);
      if (!to) continue;
      const Bytes row = columns_[f].row_elements * size_of(columns_[f].field.sample.dtype);
      for (size_t i = 0; i < indices.size();) {
        size_t end = i + 1;
        while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
        columns_[f].read_rows(indices[i], static_cast<int64_t>(end - i),
                              to + static_cast<int64_t>(i) * row);
        i = end;
      }
    }
  }

  // A disk fetches many pieces in the time of one. A few samples tell whether the data is in memory
  // anyway, so that asking for each costs nothing there.
  void expect(std::span<const int64_t> indices) override {
    for (const Column& column : columns_) {
      if (!column.held.empty()) continue;
      const File& file = *column.array.file;
      const Bytes row = column.row_elements * size_of(column.array.stored);
      const auto at = [&](int64_t index) { return column.array.data_at + index * row; };
      const auto few = indices.first(std::min<size_t>(indices.size(), 4));
      if (std::all_of(few.begin(), few.end(), [&](int64_t i) { return file.is_cached(at(i)); }))
        continue;
      for (int64_t index : indices) file.expect(row, at(index));
    }
  }

  Bytes resident_bytes() const override {
    Bytes bytes = 4 * kKiB;  // the objects themselves
    for (const Column& column : columns_)
      bytes += static_cast<Bytes>(column.held.capacity() + 2 * column.array.what.size() +
                                  column.array.file->path().size()) +
               4 * column.array.shape.rank() * static_cast<Bytes>(sizeof(Dim));
    return bytes;
  }

 private:
  std::string name_;
  int64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<Column> columns_;
};

Column make_column(const char* name, DiskArray array) {
  if (array.shape.rank() < 1 || array.shape[0] < 1)
    throw DataError("[data] " + array.what + ": expected at least one sample, received shape " +
                    array.shape.text());
  Column column;
  column.field = {name, {dtype_of(array.stored), array.shape.without_front()}, std::nullopt};
  column.row_elements = column.field.sample.elements();
  if (column.row_elements < 1)
    throw DataError("[data] " + array.what + ": expected samples of at least one element, " +
                    "received shape " + array.shape.text());
  column.array = std::move(array);
  column.hold();
  return column;
}

void finish_x(Column& x) {
  const Stored stored = x.array.stored;
  if (stored == Stored::uint8) x.field.range = ValueRange{0, 255};
  if (stored == Stored::boolean) x.field.range = ValueRange{0, 1};
  x.direct = stored == Stored::uint8 || is_floating(stored);
  if (!x.direct && !x.field.range) x.field.range = x.scan();
}

void finish_y(Column& y) {
  y.field.role = Role::y;
  if (is_floating(y.array.stored)) {
    y.direct = true;
    return;
  }
  if (y.field.sample.shape == Shape{1}) y.field.sample.shape = Shape();
  y.field.sample.dtype = Dtype::int32;
  y.field.range = y.scan();
  if (y.field.range->low < 0 || y.field.range->high > std::numeric_limits<int32_t>::max())
    throw DataError("[data] " + y.array.what + ": expected labels from 0 to 2147483647, received " +
                    std::to_string(y.field.range->low) + " to " +
                    std::to_string(y.field.range->high) + "; number the classes from 0");
}

}  // namespace

std::unique_ptr<Source> array_source(std::string name, DiskArray x_array, DiskArray y_array) {
  Column x = make_column("x", std::move(x_array)), y = make_column("y", std::move(y_array));
  if (x.array.shape[0] != y.array.shape[0])
    throw DataError("[data] " + name + ": expected as many samples in x as in y, received " +
                    x.array.shape.text() + " and " + y.array.shape.text());
  finish_x(x);
  finish_y(y);
  std::vector<Column> columns;
  columns.push_back(std::move(x));
  columns.push_back(std::move(y));
  return std::make_unique<ArraySource>(std::move(name), std::move(columns));
}

std::unique_ptr<Source> array_source(std::string name, DiskArray x_array) {
  std::vector<Column> columns;
  columns.push_back(make_column("x", std::move(x_array)));
  finish_x(columns[0]);
  return std::make_unique<ArraySource>(std::move(name), std::move(columns));
}

}  // namespace pl

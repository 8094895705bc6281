// A source whose samples a function makes.
#include "data/function_source.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

constexpr size_t kMostFields = 32;

class FunctionSource : public Source {
 public:
  FunctionSource(std::vector<Field> fields, int64_t size, SampleFunction function, Bytes resident)
      : fields_(std::move(fields)),
        size_(size),
        function_(std::move(function)),
        resident_(resident) {}
  std::string name() const override { return "function"; }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size(), "one destination for each field");
    void* places[kMostFields];
    std::copy(destinations.begin(), destinations.end(), places);
    const std::span<void* const> sample(places, fields_.size());
    for (int64_t index : indices) {
      check(index >= 0 && index < size_, "an index of the source");
      function_(index, sample);
      for (size_t f = 0; f < fields_.size(); ++f) {
        if (!places[f]) continue;
        if (fields_[f].range) check_labels(fields_[f], places[f], index);
        places[f] = static_cast<char*>(places[f]) + fields_[f].sample.bytes();
      }
    }
  }

  Bytes resident_bytes() const override { return 4 * kKiB + resident_; }

 private:
  static void check_labels(const Field& field, const void* values, int64_t index) {
    for (int64_t i = 0; i < field.sample.elements(); ++i) {
      const int64_t value = static_cast<const int32_t*>(values)[i];
      if (value < field.range->low || value > field.range->high)
        throw DataError("[data] function: sample " + std::to_string(index) + ": expected " +
                        field.name + " from " + std::to_string(field.range->low) + " to " +
                        std::to_string(field.range->high) + ", received " + std::to_string(value));
    }
  }

  std::vector<Field> fields_;
  int64_t size_;
  SampleFunction function_;
  Bytes resident_;
};

}  // namespace

std::unique_ptr<Source> function_source(std::vector<Field> fields, int64_t size,
                                        SampleFunction function, Bytes resident) {
  if (fields.empty() || fields.size() > kMostFields || size < 1 || !function)
    throw DataError("[data] function: expected a function, 1 to " + std::to_string(kMostFields) +
                    " fields and at least one sample, received " + std::to_string(fields.size()) +
                    " fields and " + std::to_string(size) + " samples");
  for (const Field& field : fields)
    if (!is_floating(field.sample.dtype) && field.sample.dtype != Dtype::uint8 &&
        (field.sample.dtype != Dtype::int32 || !field.range))
      throw DataError("[data] function: field " + field.name +
                      ": expected floating values, uint8, or int32 with the range of its values, "
                      "received " +
                      field.sample.text());
  return std::make_unique<FunctionSource>(std::move(fields), size, std::move(function), resident);
}

}  // namespace pl

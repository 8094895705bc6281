// Sources that add a weight to each sample of another.
#include <cmath>
#include <vector>

#include "base/error.h"
#include "data/tensor_source.h"

namespace pl {
namespace {

// Another source's fields, and one float32 weight a sample behind them.
class WeightedSource : public Source {
 public:
  explicit WeightedSource(Source& source) : source_(source), fields_(source.fields()) {
    fields_.push_back({"sample_weight", {Dtype::float32, Shape()}, std::nullopt, Role::weight});
  }
  std::string name() const override { return source_.name(); }
  int64_t size() const override { return source_.size(); }
  const std::vector<Field>& fields() const override { return fields_; }
  Bytes resident_bytes() const override { return source_.resident_bytes() + kOwnBytes; }
  int64_t batch() const override { return source_.batch(); }
  void begin_epoch(int64_t epoch) override { source_.begin_epoch(epoch); }
  bool require_below(size_t field, const std::string& what, int64_t count,
                     std::optional<int64_t> allowed) override {
    return source_.require_below(field, what, count, allowed);
  }

  void expect(std::span<const int64_t> indices) override { source_.expect(indices); }
  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size(), "one destination for each field");
    source_.read(indices, destinations.first(destinations.size() - 1));
    if (float* weights = static_cast<float*>(destinations.back()))
      weigh(destinations, {weights, indices.size()});
  }

 protected:
  // The other fields have been read.
  virtual void weigh(std::span<void* const> destinations, std::span<float> weights) const = 0;

  static constexpr Bytes kOwnBytes = 2 * kKiB;
  Source& source_;
  std::vector<Field> fields_;
};

class UnitWeights final : public WeightedSource {
 public:
  using WeightedSource::WeightedSource;

 private:
  void weigh(std::span<void* const>, std::span<float> weights) const override {
    for (float& weight : weights) weight = 1;
  }
};

class ClassWeights final : public WeightedSource {
 public:
  ClassWeights(Source& source, const std::map<int64_t, double>& weights)
      : WeightedSource(source), weights_(weights) {
    size_t targets = 0;
    for (size_t f = 0; f < source.fields().size(); ++f) {
      if (source.fields()[f].role == Role::weight)
        throw UserError(
            "[fit] class_weight: expected samples without weights of their own, "
            "received both");
      if (source.fields()[f].role != Role::y) continue;
      y_ = f;
      ++targets;
    }
    if (targets != 1)
      throw UserError("[fit] class_weight: expected a model with one output, received " +
                      std::to_string(targets) + " targets");
    const Meta& y = fields_[y_].sample;
    if (y.shape.rank() > 1)
      throw UserError("[fit] class_weight: expected one class a sample, received targets of " +
                      y.text() + "; give sample_weight instead");
  }
  Bytes resident_bytes() const override {
    return WeightedSource::resident_bytes() + static_cast<Bytes>(weights_.size()) * 64;
  }

 private:
  void weigh(std::span<void* const> destinations, std::span<float> weights) const override {
    const Meta& y = fields_[y_].sample;
    const int64_t width = y.elements();
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto at = weights_.find(class_at(destinations[y_], y.dtype, i, width));
      weights[i] = at == weights_.end() ? 1.0f : static_cast<float>(at->second);
    }
  }

  static int64_t class_at(const void* y, Dtype dtype, size_t sample, int64_t width) {
    auto number = [&](int64_t element) {
      const auto at = static_cast<int64_t>(sample) * width + element;
      switch (dtype) {
        case Dtype::float32:
          return static_cast<double>(static_cast<const float*>(y)[at]);
        case Dtype::float64:
          return static_cast<const double*>(y)[at];
        default:
          return static_cast<double>(static_cast<const int32_t*>(y)[at]);
      }
    };
    if (width == 1) return static_cast<int64_t>(std::nearbyint(number(0)));
    int64_t best = 0;
    for (int64_t c = 1; c < width; ++c)
      if (number(c) > number(best)) best = c;
    return best;
  }

  std::map<int64_t, double> weights_;
  size_t y_ = 0;
};

}  // namespace

std::unique_ptr<Source> unit_weights(Source& source) {
  return std::make_unique<UnitWeights>(source);
}

std::unique_ptr<Source> class_weights(Source& source, const std::map<int64_t, double>& weights) {
  return std::make_unique<ClassWeights>(source, weights);
}

}  // namespace pl

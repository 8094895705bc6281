// synthetic_source: one fixed batch that exists only while it is read.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "data/source.h"

namespace pl {
namespace {

// Calls `put(element, 32 random bits)` for all elements of one sample of one field, two a number.
template <class Put>
void generate(uint64_t key, int64_t elements, Put put) {
  for (int64_t i = 0; i + 1 < elements; i += 2) {
    const uint64_t bits = mix(key += kGoldenStep);
    put(i, static_cast<uint32_t>(bits));
    put(i + 1, static_cast<uint32_t>(bits >> 32));
  }
  if (elements % 2 == 1) put(elements - 1, static_cast<uint32_t>(mix(key + kGoldenStep)));
}

// 24 bits, so that float32 and float64 see the same numbers.
float uniform(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits) >> 8) * 0x1p-23f;
}

int32_t below(uint32_t bits, int64_t bound) {
  return static_cast<int32_t>(static_cast<uint64_t>(bits) * static_cast<uint64_t>(bound) >> 32);
}

class SyntheticSource : public Source {
 public:
  explicit SyntheticSource(const SyntheticSpec& spec) : spec_(spec) {
    fields_.push_back({"x", spec.x, std::nullopt});
    if (spec.x.dtype == Dtype::int32) fields_[0].range = ValueRange{0, spec.vocabulary - 1};
    if (spec.x.dtype == Dtype::uint8) fields_[0].range = ValueRange{0, 255};
    fields_.push_back({"y", {Dtype::int32, spec.y}, ValueRange{0, spec.classes - 1}, Role::y});
    x_elements_ = spec.x.elements();
    y_elements_ = spec.y.elements();
  }

  std::string name() const override { return "synthetic"; }
  int64_t size() const override { return spec_.samples; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == 2, "one destination for each field");
    for (size_t i = 0; i < indices.size(); ++i) {
      check(indices[i] >= 0 && indices[i] < spec_.samples, "an index of the source");
      const auto row = static_cast<int64_t>(i);
      if (destinations[0]) make_x(indices[i], destinations[0], row * x_elements_);
      if (!destinations[1]) continue;
      int32_t* y = static_cast<int32_t*>(destinations[1]) + row * y_elements_;
      if (spec_.next_token) {
        make_next(indices[i], y);
        continue;
      }
      generate(key(indices[i], 1), y_elements_,
               [&](int64_t e, uint32_t bits) { y[e] = below(bits, spec_.classes); });
    }
  }

  Bytes resident_bytes() const override { return 4 * kKiB; }

 private:
  uint64_t key(int64_t sample, uint64_t field) const {
    return mix(mix(mix(spec_.seed + kGoldenStep) + static_cast<uint64_t>(sample) * kGoldenStep) +
               field);
  }

  // One token more than x has; the first is left out.
  void make_next(int64_t sample, int32_t* y) const {
    generate(key(sample, 0), x_elements_ + 1, [&](int64_t e, uint32_t bits) {
      if (e > 0) y[e - 1] = below(bits, spec_.vocabulary);
    });
  }

  void make_x(int64_t sample, void* destination, int64_t at) const {
    const uint64_t k = key(sample, 0);
    switch (spec_.x.dtype) {
      case Dtype::float32: {
        float* x = static_cast<float*>(destination) + at;
        return generate(k, x_elements_, [=](int64_t e, uint32_t bits) { x[e] = uniform(bits); });
      }
      case Dtype::float64: {
        double* x = static_cast<double*>(destination) + at;
        return generate(k, x_elements_, [=](int64_t e, uint32_t bits) { x[e] = uniform(bits); });
      }
      case Dtype::uint8: {
        uint8_t* x = static_cast<uint8_t*>(destination) + at;
        return generate(k, x_elements_,
                        [=](int64_t e, uint32_t bits) { x[e] = static_cast<uint8_t>(bits >> 24); });
      }
      default: {
        int32_t* x = static_cast<int32_t*>(destination) + at;
        const int64_t bound = spec_.vocabulary;
        return generate(k, x_elements_,
                        [=](int64_t e, uint32_t bits) { x[e] = below(bits, bound); });
      }
    }
  }

  SyntheticSpec spec_;
  std::vector<Field> fields_;
  int64_t x_elements_ = 0, y_elements_ = 0;
};

}  // namespace

std::unique_ptr<Source> synthetic_source(const SyntheticSpec& spec) {
  const Dtype dtype = spec.x.dtype;
  if (dtype != Dtype::float32 && dtype != Dtype::float64 && dtype != Dtype::uint8 &&
      dtype != Dtype::int32)
    throw UserError("[data] synthetic: expected x of float32, float64, uint8 or int32, received " +
                    std::string(name_of(dtype)));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto label = [&](int64_t count) { return count >= 1 && count <= kMost; };
  if (spec.samples < 1 || !label(spec.classes) ||
      (dtype == Dtype::int32 && !label(spec.vocabulary)))
    throw UserError("[data] synthetic: expected at least one sample, one class and one token, " +
                    std::string("received ") + std::to_string(spec.samples) + ", " +
                    std::to_string(spec.classes) + " and " + std::to_string(spec.vocabulary));
  if (spec.next_token &&
      (dtype != Dtype::int32 || spec.y != spec.x.shape || spec.classes < spec.vocabulary))
    throw UserError("[data] synthetic: expected tokens and targets of one shape, received " +
                    spec.x.text() + " and " + spec.y.text());
  return std::make_unique<SyntheticSource>(spec);
}

}  // namespace pl

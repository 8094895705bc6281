#include "model/initializer.h"

#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "op/philox.h"

namespace pl {
namespace {

enum class Kind : uint8_t { constant, uniform, normal };

// `scale_mode`: how the width follows from the fans, as in Keras's VarianceScaling.
struct Entry {
  const char* name;
  Kind kind;
  double value;  // constant; or variance scale (fan modes); or the width itself (mode 'w')
  char mode;     // 'a' fan average, 'i' fan in, 'w' fixed width
};
constexpr Entry kEntries[] = {
    {"zeros", Kind::constant, 0, 'w'},
    {"ones", Kind::constant, 1, 'w'},
    {"glorot_uniform", Kind::uniform, 1, 'a'},
    {"glorot_normal", Kind::normal, 1, 'a'},
    {"he_uniform", Kind::uniform, 2, 'i'},
    {"he_normal", Kind::normal, 2, 'i'},
    {"random_uniform", Kind::uniform, 0.05, 'w'},
    {"uniform", Kind::uniform, 0.05, 'w'},
    {"random_normal", Kind::normal, 0.05, 'w'},
    {"normal", Kind::normal, 0.05, 'w'},
};

// The entry, with the width that "name:width" gives.
std::optional<Entry> find(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  for (Entry entry : kEntries) {
    if (name != entry.name) continue;
    if (colon == std::string::npos) return entry;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, entry.value);
    const bool good = error == std::errc() && at == end && entry.value >= 0 && entry.value < 1e30;
    if (good && entry.mode == 'w' && entry.kind != Kind::constant) return entry;
  }
  return std::nullopt;
}

// Fan in and out of a kernel (..., in, out); the leading dimensions are the receptive field.
std::pair<double, double> fans(const Shape& shape) {
  if (shape.rank() == 0) return {1, 1};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double field = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) field *= static_cast<double>(shape[axis]);
  return {field * static_cast<double>(shape[shape.rank() - 2]),
          field * static_cast<double>(shape[shape.rank() - 1])};
}

double width_of(const Entry& entry, const Shape& shape) {
  if (entry.mode == 'w') return entry.value;
  const auto [in, out] = fans(shape);
  const double fan = std::max(entry.mode == 'a' ? (in + out) / 2 : in, 1.0);
  const double variance = entry.value / fan;
  // Keras draws scaled normals from a truncated distribution, whose deviation is 0.8796 of the
  // whole's.
  return entry.kind == Kind::uniform ? std::sqrt(3 * variance)
                                     : std::sqrt(variance) / 0.87962566103423978;
}

double unit(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }  // in (0, 1)

template <class T>
void fill(const Entry& entry, const Meta& meta, PhiloxKey key, T* data) {
  const int64_t count = meta.elements();
  const double width = entry.kind == Kind::constant ? 0 : width_of(entry, meta.shape);
  for (int64_t i = 0; i < count; ++i) {
    if (entry.kind == Kind::constant) {
      data[i] = static_cast<T>(entry.value);
    } else if (entry.kind == Kind::uniform) {
      const PhiloxWords words = philox_block(key, 0, static_cast<uint64_t>(i) / 4);
      data[i] = static_cast<T>((2 * unit(words[static_cast<size_t>(i % 4)]) - 1) * width);
    } else {
      // Box-Muller, drawn again (the next step of the stream) until within two deviations.
      double value = 3;
      for (uint64_t draw = 0; std::fabs(value) > 2; ++draw) {
        const PhiloxWords words = philox_block(key, draw, static_cast<uint64_t>(i));
        value = std::sqrt(-2 * std::log(unit(words[0]))) *
                std::cos(2 * std::numbers::pi * unit(words[1]));
        if (entry.mode == 'w') break;  // random_normal is not truncated
      }
      data[i] = static_cast<T>(value * width);
    }
  }
}

}  // namespace

void check_initializer(const std::string& name) {
  if (find(name)) return;
  std::string known;
  for (const Entry& entry : kEntries)
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  throw UserError("[model] initializer: expected one of " + known +
                  ", or random_normal:WIDTH, received '" + name + "'");
}

void initialize(const std::string& name, const Meta& meta, uint64_t seed, const std::string& path,
                void* data) {
  check_initializer(name);
  const PhiloxKey key = philox_stream(seed, xxh3("initial/" + path));
  switch (meta.dtype) {
    case Dtype::float32:
      return fill(*find(name), meta, key, static_cast<float*>(data));
    case Dtype::float64:
      return fill(*find(name), meta, key, static_cast<double*>(data));
    default:
      throw InternalError("[model] " + path + ": weights are float32 or float64");
  }
}

}  // namespace pl

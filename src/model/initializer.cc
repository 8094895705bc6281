#include "model/initializer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "model/initialize_part.h"
#include "model/spec.h"
#include "op/philox.h"

namespace pl {
namespace {

enum class Kind : uint8_t {
  constant,
  uniform,
  normal,
  truncated,
  orthogonal,
  identity,
  unit_forget,
  values
};

// What is drawn: a constant; uniform between two numbers; or normal with mean and deviation.
struct Draw {
  Kind kind = Kind::constant;
  double a = 0, b = 0;  // value; minval, maxval; mean, stddev; gain
};

constexpr SpecEntry kEntries[] = {
    {"zeros"},
    {"ones"},
    {"constant", "value"},
    {"glorot_uniform", "fan_in fan_out seed="},
    {"glorot_normal", "fan_in fan_out seed="},
    {"he_uniform", "fan_in fan_out seed="},
    {"he_normal", "fan_in fan_out seed="},
    {"lecun_uniform", "fan_in fan_out seed="},
    {"lecun_normal", "fan_in fan_out seed="},
    {"variance_scaling", "scale mode= distribution= fan_in fan_out seed="},
    {"random_uniform", "width minval maxval seed="},
    {"uniform", "width minval maxval seed="},
    {"random_normal", "stddev mean seed="},
    {"normal", "stddev mean seed="},
    {"truncated_normal", "stddev mean seed="},
    {"orthogonal", "gain seed="},
    {"identity", "gain"},
    {"unit_forget"},
};
constexpr const char* kValues = "values:";

// Keras's VarianceScaling, of which most others are names.
struct Scaling {
  const char* name;
  double scale;
  const char *mode, *distribution;
};
constexpr Scaling kScalings[] = {
    {"glorot_uniform", 1, "fan_avg", "uniform"},
    {"glorot_normal", 1, "fan_avg", "truncated_normal"},
    {"he_uniform", 2, "fan_in", "uniform"},
    {"he_normal", 2, "fan_in", "truncated_normal"},
    {"lecun_uniform", 1, "fan_in", "uniform"},
    {"lecun_normal", 1, "fan_in", "truncated_normal"},
    {"variance_scaling", 1, "fan_in", "truncated_normal"},
};
const Scaling* scaling_named(const std::string& name) {
  for (const Scaling& entry : kScalings)
    if (name == entry.name) return &entry;
  return nullptr;
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

Draw scaled_draw(const Spec& spec, const Scaling& scaling, const Shape& shape) {
  auto [in, out] = fans(shape);
  in = spec.number("fan_in", in);
  out = spec.number("fan_out", out);
  const std::string mode = spec.word("mode", scaling.mode);
  const std::string distribution = spec.word("distribution", scaling.distribution);
  const double fan = mode == "fan_in" ? in : mode == "fan_out" ? out : (in + out) / 2;
  const double variance = spec.number("scale", scaling.scale) / std::max(fan, 1.0);
  if (distribution == "uniform")
    return {Kind::uniform, -std::sqrt(3 * variance), std::sqrt(3 * variance)};
  if (distribution == "untruncated_normal") return {Kind::normal, 0, std::sqrt(variance)};
  // The deviation of a truncated normal distribution is 0.8796 of the whole's.
  return {Kind::truncated, 0, std::sqrt(variance) / 0.87962566103423978};
}

Draw draw_of(const Spec& spec, const Shape& shape) {
  if (const Scaling* scaling = scaling_named(spec.name)) return scaled_draw(spec, *scaling, shape);
  if (spec.name == "ones") return {Kind::constant, 1, 0};
  if (spec.name == "constant") return {Kind::constant, spec.number("value", 0), 0};
  if (spec.name == "orthogonal") return {Kind::orthogonal, spec.number("gain", 1), 0};
  if (spec.name == "unit_forget") return {Kind::unit_forget, 0, 0};
  if (spec.name == "identity") return {Kind::identity, spec.number("gain", 1), 0};
  if (spec.name.ends_with("uniform")) {
    const double width = spec.number("width", 0.05);
    return {Kind::uniform, spec.number("minval", -width), spec.number("maxval", width)};
  }
  if (spec.name.ends_with("normal"))
    return {spec.name == "truncated_normal" ? Kind::truncated : Kind::normal,
            spec.number("mean", 0), spec.number("stddev", 0.05)};
  return {};
}

// Of a specification; none: it has none, or no number.
std::optional<uint64_t> seed_of(const Spec& spec) {
  const std::string text = spec.word("seed", "");
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return seed;
}

Spec checked_spec(const std::string& text) {
  Spec spec = parse_spec("initializer", text, kEntries);
  auto refuse = [&](const char* expected) {
    throw UserError("[model] initializer: expected " + std::string(expected) + ", received '" +
                    text + "'");
  };
  const std::string mode = spec.word("mode", "fan_in");
  if (mode != "fan_in" && mode != "fan_out" && mode != "fan_avg")
    refuse("mode fan_in, fan_out or fan_avg");
  const std::string drawn = spec.word("distribution", "uniform");
  if (drawn != "uniform" && drawn != "truncated_normal" && drawn != "untruncated_normal")
    refuse("distribution truncated_normal, untruncated_normal or uniform");
  if (!(spec.number("scale", 1) > 0)) refuse("a positive scale");
  if (spec.has("seed") && !seed_of(spec)) refuse("a whole number as seed");
  for (const char* size : {"stddev", "width", "fan_in", "fan_out"})
    if (!(spec.number(size, 0) >= 0)) refuse("widths and fans from 0");
  return spec;
}

// The numbers of initializers::Values, or nothing.
std::optional<std::vector<double>> listed_values(const std::string& text) {
  if (!text.starts_with(kValues)) return std::nullopt;
  std::vector<double> out;
  const char *at = text.data() + std::char_traits<char>::length(kValues),
             *end = text.data() + text.size();
  while (at < end) {
    const auto [next, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc()) return std::nullopt;
    at = next + (next < end ? 1 : 0);
  }
  return out;
}

double unit(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }  // in (0, 1)

// Box-Muller; truncated: drawn again (the next step of the stream) until within two deviations.
double normal(PhiloxKey key, int64_t i, bool truncated) {
  for (uint64_t draw = 0;; ++draw) {
    const PhiloxWords words = philox_block(key, draw, static_cast<uint64_t>(i));
    const double value =
        std::sqrt(-2 * std::log(unit(words[0]))) * std::cos(2 * std::numbers::pi * unit(words[1]));
    if (!truncated || std::fabs(value) <= 2) return value;
  }
}

// Makes `count` vectors of `size` elements orthonormal, one after the other, each twice: what is
// left of the others after the first time is rounding. Of normal numbers this gives rotations that
// are all equally likely, as a QR factorisation with a positive diagonal does. Element e of vector
// v is data[v * from_vector + e * from_element].
template <class T>
void orthonormalise(T* data, int64_t count, int64_t size, int64_t from_vector,
                    int64_t from_element) {
  auto at = [&](int64_t v, int64_t e) -> T& { return data[v * from_vector + e * from_element]; };
  for (int64_t v = 0; v < count; ++v) {
    for (int64_t u = 0; u < 2 * v; ++u) {
      double along = 0;
      for (int64_t e = 0; e < size; ++e)
        along += static_cast<double>(at(u % v, e)) * static_cast<double>(at(v, e));
      for (int64_t e = 0; e < size; ++e)
        at(v, e) = static_cast<T>(static_cast<double>(at(v, e)) -
                                  along * static_cast<double>(at(u % v, e)));
    }
    double square = 0;
    for (int64_t e = 0; e < size; ++e)
      square += static_cast<double>(at(v, e)) * static_cast<double>(at(v, e));
    for (int64_t e = 0; e < size; ++e)
      at(v, e) = static_cast<T>(static_cast<double>(at(v, e)) / std::sqrt(square));
  }
}

// The last dimension counts columns; whichever are fewer, rows or columns, are orthonormal.
template <class T>
void fill_orthogonal(const Meta& meta, double gain, PhiloxKey key, T* data) {
  const int64_t count = meta.elements(), columns = count > 0 ? meta.shape.back() : 1;
  const int64_t rows = count / columns;
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(normal(key, i, false));
  if (rows < columns)
    orthonormalise(data, rows, columns, columns, 1);
  else
    orthonormalise(data, columns, rows, 1, columns);
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(static_cast<double>(data[i]) * gain);
}

template <class T>
void fill(const Draw& draw, const Meta& meta, PhiloxKey key, T* data, ElementRange range) {
  const int64_t count = meta.elements();
  if (draw.kind == Kind::orthogonal) {
    if (range.first == 0) fill_orthogonal(meta, draw.a, key, data);
    return;
  }
  for (int64_t i = range.first; i < std::min(count, range.end); ++i) {
    switch (draw.kind) {
      case Kind::uniform: {
        const PhiloxWords words = philox_block(key, 0, static_cast<uint64_t>(i) / 4);
        const double middle = (draw.a + draw.b) / 2, half = (draw.b - draw.a) / 2;
        data[i] = static_cast<T>((2 * unit(words[static_cast<size_t>(i % 4)]) - 1) * half + middle);
        break;
      }
      case Kind::normal:
      case Kind::truncated:
        data[i] = static_cast<T>(normal(key, i, draw.kind == Kind::truncated) * draw.b + draw.a);
        break;
      case Kind::unit_forget:  // the second of four gates
        data[i] = static_cast<T>(i * 4 / count == 1 ? 1 : 0);
        break;
      case Kind::identity:
        data[i] = static_cast<T>(i / meta.shape[1] == i % meta.shape[1] ? draw.a : 0);
        break;
      default:
        data[i] = static_cast<T>(draw.a);
    }
  }
}

void check_shape(const Draw& draw, const Meta& meta, const std::string& path) {
  const int rank = meta.shape.rank();
  if (draw.kind == Kind::orthogonal ? rank < 2 : draw.kind == Kind::identity && rank != 2)
    throw UserError("[model] " + path + ": expected " +
                    (draw.kind == Kind::identity ? "two" : "at least two") +
                    " dimensions for its initializer, received " + meta.shape.text());
}

template <class T>
void fill_from(const std::string& text, const Meta& meta, PhiloxKey key, const std::string& path,
               T* data, ElementRange range) {
  if (const auto values = listed_values(text)) {
    if (static_cast<int64_t>(values->size()) != meta.elements())
      throw UserError("[model] " + path + ": expected " + std::to_string(meta.elements()) +
                      " initial values, received " + std::to_string(values->size()));
    for (size_t i = 0; i < values->size() && range.first == 0; ++i)
      data[i] = static_cast<T>((*values)[i]);
    return;
  }
  const Draw draw = draw_of(checked_spec(text), meta.shape);
  check_shape(draw, meta, path);
  fill(draw, meta, key, data, range);
}

}  // namespace

void check_initializer(const std::string& name) {
  if (!listed_values(name)) checked_spec(name);
}

std::string with_fans(const std::string& initializer, int64_t fan_in, int64_t fan_out) {
  if (listed_values(initializer)) return initializer;
  const Spec spec = checked_spec(initializer);
  if (!scaling_named(spec.name) || spec.has("fan_in") || spec.has("fan_out")) return initializer;
  return initializer + (spec.values.empty() ? ":" : ",") + "fan_in=" + std::to_string(fan_in) +
         ",fan_out=" + std::to_string(fan_out);
}

void initialize(const std::string& name, const Meta& meta, uint64_t seed, const std::string& path,
                void* data) {
  initialize_part(name, meta, seed, path, data, {});
}

void initialize_part(const std::string& name, const Meta& meta, uint64_t seed,
                     const std::string& path, void* data, ElementRange range) {
  PhiloxKey key = philox_stream(seed, xxh3("initial/" + path));
  if (!listed_values(name))
    if (const auto own = seed_of(checked_spec(name))) key = philox_stream(*own, xxh3("initial"));
  switch (meta.dtype) {
    case Dtype::float32:
      return fill_from(name, meta, key, path, static_cast<float*>(data), range);
    case Dtype::float64:
      return fill_from(name, meta, key, path, static_cast<double*>(data), range);
    default:
      throw InternalError("[model] " + path + ": weights are float32 or float64");
  }
}

namespace initializers {
namespace {

// `text` with a seed behind it, if there is one.
std::string seeded(const std::string& text, const Seed& seed) {
  if (!seed) return text;
  const bool first = text.find(':') == std::string::npos;
  return text + (first ? ":" : ",") + "seed=" + std::to_string(*seed);
}

}  // namespace

std::string Zeros() { return "zeros"; }
std::string Ones() { return "ones"; }
std::string Constant(double value) { return make_spec("constant", {{"value", value}}); }
std::string RandomNormal(NormalOptions options) {
  return seeded(make_spec("random_normal", {{"stddev", options.stddev}, {"mean", options.mean}}),
                options.seed);
}
std::string TruncatedNormal(NormalOptions options) {
  return seeded(make_spec("truncated_normal", {{"stddev", options.stddev}, {"mean", options.mean}}),
                options.seed);
}
std::string RandomUniform(RandomUniformOptions options) {
  return seeded(
      make_spec("random_uniform", {{"minval", options.minval}, {"maxval", options.maxval}}),
      options.seed);
}
std::string VarianceScaling(VarianceScalingOptions options) {
  return seeded(make_spec("variance_scaling", {{"scale", options.scale}}) +
                    ",mode=" + options.mode + ",distribution=" + options.distribution,
                options.seed);
}
std::string GlorotUniform(SeedOptions options) { return seeded("glorot_uniform", options.seed); }
std::string GlorotNormal(SeedOptions options) { return seeded("glorot_normal", options.seed); }
std::string HeUniform(SeedOptions options) { return seeded("he_uniform", options.seed); }
std::string HeNormal(SeedOptions options) { return seeded("he_normal", options.seed); }
std::string LecunUniform(SeedOptions options) { return seeded("lecun_uniform", options.seed); }
std::string LecunNormal(SeedOptions options) { return seeded("lecun_normal", options.seed); }
std::string Orthogonal(double gain, SeedOptions options) {
  return seeded(make_spec("orthogonal", {{"gain", gain}}), options.seed);
}
std::string UnitForget() { return "unit_forget"; }
std::string Identity(double gain) { return make_spec("identity", {{"gain", gain}}); }
std::string Values(const std::vector<double>& values) {
  std::string text = kValues;
  for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + spec_digits(values[i]);
  return text;
}

}  // namespace initializers
}  // namespace pl

#include "op/sample.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "op/philox.h"

namespace pl {
namespace {

constexpr int64_t kMostDistinct = 65536;

uint64_t fnv1a(const void* data, size_t size, uint64_t hash = 0xcbf29ce484222325) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

uint64_t fnv1a(const std::string& text, uint64_t hash = 0xcbf29ce484222325) {
  return fnv1a(text.data(), text.size(), hash);
}

bool is_drawn(const SampleInput& input) {
  return is_floating(input.meta.dtype) &&
         (input.fill == Fill::normal || input.fill == Fill::positive);
}

// The sample's random words: `at(input, element)`.
class RandomWords {
 public:
  RandomWords(const Op& op, const Sample& sample)
      : seed_(fnv1a(std::string(op.name) + "/" + sample.name)) {}
  uint32_t at(uint64_t input, int64_t element) const {
    return philox_block(philox_stream(seed_, input), 0, static_cast<uint64_t>(element))[0];
  }

 private:
  uint64_t seed_;
};

// For each drawn element of the sample a place in [0, count), no two alike unless they are too
// many.
std::vector<int64_t> places(const Sample& sample, const RandomWords& words) {
  int64_t count = 0;
  for (const SampleInput& input : sample.in)
    if (is_drawn(input)) count += input.meta.elements();
  std::vector<int64_t> order(static_cast<size_t>(count)), place(static_cast<size_t>(count));
  constexpr uint64_t kStream = 1000;  // beyond every input
  if (count > kMostDistinct) {
    for (int64_t i = 0; i < count; ++i)
      place[static_cast<size_t>(i)] =
          words.at(kStream, i) % static_cast<uint32_t>(kMostDistinct) * count / kMostDistinct;
    return place;
  }
  std::vector<uint32_t> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back(words.at(kStream, i));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  for (int64_t i = 0; i < count; ++i) place[static_cast<size_t>(order[static_cast<size_t>(i)])] = i;
  return place;
}

// How many classes labels range over.
Dim classes_of(const Sample& sample) {
  if (sample.attrs.has("depth")) return std::max<Dim>(1, sample.attrs.integer("depth"));
  for (const SampleInput& input : sample.in)
    if (input.meta.shape.rank() >= 2) return std::max<Dim>(1, input.meta.shape.back());
  return 10;
}

// Rows of positive numbers that sum to 1, or with a single 1.
std::vector<double> distributions(const Meta& meta, bool one_hot, const RandomWords& words,
                                  uint64_t input) {
  const Dim classes = meta.shape.rank() > 0 ? meta.shape.back() : 1, total = meta.elements();
  std::vector<double> values(static_cast<size_t>(total), 0.0);
  for (Dim first = 0; classes > 0 && first < total; first += classes) {
    double* row = values.data() + first;
    if (one_hot) {
      row[words.at(input, first) % static_cast<uint64_t>(classes)] = 1;
      continue;
    }
    double sum = 0;
    for (Dim c = 0; c < classes; ++c) sum += row[c] = 0.25 + words.at(input, first + c) * 0x1p-32;
    for (Dim c = 0; c < classes; ++c) row[c] /= sum;
  }
  return values;
}

// Element values of one input; `place` and `count` are those of the drawn elements.
std::vector<double> values_of(const Sample& sample, size_t index, const RandomWords& words,
                              const int64_t* place, size_t count) {
  const auto& [meta, fill] = sample.in[index];
  if (fill == Fill::one_hot || fill == Fill::probabilities)
    return distributions(meta, fill == Fill::one_hot, words, index);
  std::vector<double> values(static_cast<size_t>(meta.elements()), 0.0);
  const auto classes = static_cast<uint64_t>(classes_of(sample));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = words.at(index, static_cast<int64_t>(i));
    if (fill == Fill::labels) {
      values[i] = static_cast<double>(word % classes);
    } else if (fill == Fill::bytes) {
      values[i] = word % 256;
    } else if (is_drawn(sample.in[index])) {
      const double size =
          0.05 + 1.95 * (static_cast<double>(place[i]) + 0.5) / static_cast<double>(count);
      values[i] = fill == Fill::normal && word % 2 ? -size : size;
    } else if (fill != Fill::zeros) {
      const double size = 1 + word / 2 % 9;
      const bool is_signed = meta.dtype == Dtype::int32 || meta.dtype == Dtype::int64;
      values[i] = meta.dtype == Dtype::boolean ? word % 2 : is_signed && word % 2 ? -size : size;
    }
  }
  return values;
}

template <class T>
void store_as(const std::vector<double>& values, const Tensor& tensor) {
  T* to = tensor.data_as<T>();
  for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
}

void store(const std::vector<double>& values, const Tensor& tensor) {
  switch (tensor.dtype()) {
    case Dtype::float32:
      return store_as<float>(values, tensor);
    case Dtype::float64:
      for (size_t i = 0; i < values.size(); ++i)
        tensor.data_as<double>()[i] = static_cast<double>(static_cast<float>(values[i]));
      return;
    case Dtype::int32:
      return store_as<int32_t>(values, tensor);
    case Dtype::int64:
      return store_as<int64_t>(values, tensor);
    case Dtype::uint8:
    case Dtype::boolean:
      return store_as<uint8_t>(values, tensor);
    default:
      throw InternalError("[sample] no values of dtype " + tensor.meta().text());
  }
}

}  // namespace

Metas sample_metas(const Sample& sample, Dtype real) {
  Metas metas;
  for (const SampleInput& input : sample.in) {
    metas.push_back(input.meta);
    if (metas.back().dtype == Dtype::float32) metas.back().dtype = real;
  }
  return metas;
}

Attrs sample_attrs(const Sample& sample, Dtype real) {
  Attrs attrs = sample.attrs;
  if (attrs.has("dtype") && attrs.text("dtype") == name_of(Dtype::float32))
    attrs.set("dtype", std::string(name_of(real)));
  return attrs;
}

// Not the first step, nor the first micro-batch.
StepParams sample_step_params(const Sample& sample) {
  const Shape& first = sample.in[0].meta.shape;
  const Dim rows = first.rank() > 0 ? first[0] : 1;
  return {.step = 3,
          .seed = 0x0123456789abcdef,
          .learning_rate = 0.05,
          .rows = rows + 2,
          .row_offset = 2};
}

Tensors sample_inputs(const Op& op, const Sample& sample, Dtype real) {
  const RandomWords words(op, sample);
  const std::vector<int64_t> place = places(sample, words);
  const int64_t* next = place.data();
  const Metas metas = sample_metas(sample, real);
  Tensors tensors;
  for (size_t i = 0; i < metas.size(); ++i) {
    tensors.emplace_back(metas[i]);
    if (sample.in[i].fill == Fill::step_params) {
      const StepParams params = sample_step_params(sample);
      std::memcpy(tensors.back().data(), &params, sizeof params);
      continue;
    }
    store(values_of(sample, i, words, next, place.size()), tensors.back());
    if (is_drawn(sample.in[i])) next += metas[i].elements();
  }
  return tensors;
}

uint64_t sample_hash(const Op& op, const Sample& sample) {
  uint64_t hash = fnv1a(sample.attrs.print());
  for (const Tensor& tensor : sample_inputs(op, sample)) {
    hash = fnv1a(tensor.meta().text(), hash);
    hash = fnv1a(tensor.data(), static_cast<size_t>(tensor.meta().bytes()), hash);
  }
  return hash;
}

}  // namespace pl

// Helpers of the pipeline's tests.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "data/pipeline/dataset.h"

namespace pl {

inline Tensor scalar64(int64_t value) {
  Tensor tensor(Meta{Dtype::int64, Shape()});
  *tensor.data_as<int64_t>() = value;
  return tensor;
}

inline int64_t number(const Element& element) { return *element[0].data_as<int64_t>(); }

// All numbers of the first field, int64, whatever its shape.
inline std::vector<int64_t> numbers(DatasetIterator& iterator, int64_t most = 1 << 20) {
  std::vector<int64_t> list;
  Element element;
  while (most-- > 0 && iterator.next(element))
    for (int64_t i = 0; i < element[0].shape().elements(); ++i)
      list.push_back(element[0].data_as<int64_t>()[i]);
  return list;
}

inline std::vector<int64_t> numbers(const Dataset& dataset, uint64_t epoch = 0) {
  DatasetIterator iterator = dataset.iterate(epoch);
  return numbers(iterator);
}

inline ElementSpec int64_spec() { return {{{"x", Dtype::int64, Shape()}}}; }

inline Element times(const Element& in, int64_t factor) { return {scalar64(number(in) * factor)}; }

inline std::vector<int64_t> iota(int64_t n, int64_t first = 0) {
  std::vector<int64_t> list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), first);
  return list;
}

// A stream: what cannot be got by index.
inline Dataset stream(int64_t n) {
  return Dataset::from_generator(
      [n] {
        return [n, i = int64_t{0}]() mutable -> std::optional<Element> {
          if (i == n) return {};
          return Element{scalar64(i++)};
        };
      },
      int64_spec());
}

}  // namespace pl

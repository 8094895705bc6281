// What an element of a pipeline is: a list of tensors, and what is known of them before one exists.
#pragma once

#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pl {

using Element = Tensors;

inline constexpr Dim kUnknown = -1;  // a dimension that differs between elements

struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::float32;
  Shape shape;  // dimensions may be kUnknown
  bool operator==(const FieldSpec&) const = default;

  bool known() const;         // every dimension is
  Bytes known_bytes() const;  // when all are
  std::string text() const;   // "x: uint8 (?, 3)"
};

struct ElementSpec {
  std::vector<FieldSpec> fields;
  bool operator==(const ElementSpec&) const = default;

  bool known() const;
  std::string text() const;
};

// Each field of an element with the batch dimension in front.
ElementSpec with_front(const ElementSpec& spec, Dim rows);
ElementSpec without_front(const ElementSpec& spec);
// The same fields with dimensions unknown where the two differ. False: they differ in more.
bool merge_specs(ElementSpec& into, const ElementSpec& other);

// Throws DataError "[stage] expected ..., received ..." unless the element is as the spec says.
void check_element(const ElementSpec& spec, const Element& element, const std::string& stage);

// `count` times `each`, at most 2^56: more than any budget, and sums of some stay numbers.
Bytes times(int64_t count, Bytes each);
// What the pool takes for so many bytes: whole pages.
Bytes granted(Bytes bytes);
// Of all fields of an element; those that alias other tensors too, since a bound may not guess.
Bytes granted(const Element& element);
// Of an element of a known spec.
Bytes granted(const ElementSpec& spec);

}  // namespace pl

// Shape: dimensions of a dense, row-major tensor (images are NHWC); Meta: dtype and shape.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tensor/dtype.h"

namespace pl {

using Dim = int64_t;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  Dim operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  Dim& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  Dim back() const { return dims_.back(); }
  const std::vector<Dim>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  bool operator==(const Shape&) const = default;

  // Number of elements; throws UserError when a dimension is negative or the product overflows.
  int64_t elements() const;
  std::string text() const;  // "(32, 28, 28, 1)"

  Shape with_front(Dim rows) const;  // (rows, d0, d1, ...)
  Shape without_front() const;       // (d1, d2, ...)

 private:
  std::vector<Dim> dims_;
};

struct Meta {
  Dtype dtype = Dtype::float32;
  Shape shape;
  bool operator==(const Meta&) const = default;

  int64_t elements() const { return shape.elements(); }
  Bytes bytes() const;       // throws UserError on overflow
  std::string text() const;  // "float32 (32, 10)"
};

using Metas = std::vector<Meta>;

}  // namespace pl

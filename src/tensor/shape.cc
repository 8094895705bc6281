#include "tensor/shape.h"

#include "base/error.h"

namespace pl {

int64_t Shape::elements() const {
  int64_t count = 1;
  for (Dim dim : dims_) {
    auto product = checked_mul(count, dim);
    if (!product)
      throw UserError("[shape] expected dimensions whose product is a 63-bit number, received " +
                      text());
    count = *product;
  }
  return count;
}

std::string Shape::text() const {
  std::string out = "(";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(dims_[i]);
  }
  return out + (dims_.size() == 1 ? ",)" : ")");
}

Shape Shape::with_front(Dim rows) const {
  std::vector<Dim> dims{rows};
  dims.insert(dims.end(), dims_.begin(), dims_.end());
  return Shape(std::move(dims));
}

Shape Shape::without_front() const {
  check(!dims_.empty(), "a scalar has no front dimension");
  return Shape(std::vector<Dim>(dims_.begin() + 1, dims_.end()));
}

Bytes Meta::bytes() const {
  auto bytes = checked_mul(elements(), size_of(dtype));
  if (!bytes || *bytes >= (int64_t{1} << 62))
    throw UserError("[shape] expected a tensor below 2^62 bytes, received " + text());
  return *bytes;
}

std::string Meta::text() const { return std::string(name_of(dtype)) + " " + shape.text(); }

}  // namespace pl

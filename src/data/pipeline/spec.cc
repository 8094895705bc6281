#include "data/pipeline/spec.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kPage = 4096;

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += shape[axis] == kUnknown ? "?" : std::to_string(shape[axis]);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

bool matches(const Shape& wanted, const Shape& given) {
  if (wanted.rank() != given.rank()) return false;
  for (int axis = 0; axis < wanted.rank(); ++axis)
    if (wanted[axis] != kUnknown && wanted[axis] != given[axis]) return false;
  return true;
}

}  // namespace

bool FieldSpec::known() const {
  return std::all_of(shape.begin(), shape.end(), [](Dim dim) { return dim != kUnknown; });
}

Bytes FieldSpec::known_bytes() const { return Meta{dtype, shape}.bytes(); }

std::string FieldSpec::text() const {
  return name + ": " + std::string(name_of(dtype)) + " " + shape_text(shape);
}

bool ElementSpec::known() const {
  return std::all_of(fields.begin(), fields.end(), [](const FieldSpec& f) { return f.known(); });
}

std::string ElementSpec::text() const {
  std::string text;
  for (const FieldSpec& field : fields) text += (text.empty() ? "" : ", ") + field.text();
  return text.empty() ? "no fields" : text;
}

ElementSpec with_front(const ElementSpec& spec, Dim rows) {
  ElementSpec out = spec;
  for (FieldSpec& field : out.fields) field.shape = field.shape.with_front(rows);
  return out;
}

ElementSpec without_front(const ElementSpec& spec) {
  ElementSpec out = spec;
  for (FieldSpec& field : out.fields) field.shape = field.shape.without_front();
  return out;
}

bool merge_specs(ElementSpec& into, const ElementSpec& other) {
  if (into.fields.size() != other.fields.size()) return false;
  for (size_t f = 0; f < into.fields.size(); ++f) {
    FieldSpec& a = into.fields[f];
    const FieldSpec& b = other.fields[f];
    if (a.dtype != b.dtype || a.shape.rank() != b.shape.rank()) return false;
    for (int axis = 0; axis < a.shape.rank(); ++axis)
      if (a.shape[axis] != b.shape[axis]) a.shape[axis] = kUnknown;
  }
  return true;
}

void check_element(const ElementSpec& spec, const Element& element, const std::string& stage) {
  bool right = element.size() == spec.fields.size();
  for (size_t f = 0; right && f < element.size(); ++f)
    right = element[f].defined() && !element[f].is_symbol() &&
            element[f].dtype() == spec.fields[f].dtype &&
            matches(spec.fields[f].shape, element[f].shape());
  if (right) return;
  std::string received;
  for (const Tensor& tensor : element)
    received += (received.empty() ? "" : ", ") +
                (tensor.defined() ? tensor.meta().text() : std::string("an empty tensor"));
  throw UserError("[" + stage + "] expected an element of " + spec.text() + ", received " +
                  (received.empty() ? "nothing" : received) +
                  "; what the stage yields must be what its signature says");
}

Bytes times(int64_t count, Bytes each) {
  constexpr Bytes kMost = Bytes{1} << 56;
  return std::min(checked_mul(count, each).value_or(kMost), kMost);
}

Bytes granted(Bytes bytes) { return align_up(std::max<Bytes>(bytes, 1), kPage); }

Bytes granted(const Element& element) {
  Bytes sum = 0;
  for (const Tensor& tensor : element) sum += granted(tensor.meta().bytes());
  return sum;
}

Bytes granted(const ElementSpec& spec) {
  Bytes sum = 0;
  for (const FieldSpec& field : spec.fields) sum += granted(field.known_bytes());
  return sum;
}

}  // namespace pl

#include "op/infer.h"

#include "base/error.h"

namespace pl {

void reject(const char* op, const std::string& expected, const Metas& in, const Attrs& attrs) {
  std::string text = std::string("[") + op + "] expected " + expected + ", received ";
  for (size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + in[i].text();
  if (in.empty()) text += "no operands";
  if (!attrs.entries().empty()) text += " " + attrs.print();
  throw UserError(text);
}

void expect_operands(const char* op, size_t least, size_t most, const Metas& in,
                     const Attrs& attrs) {
  if (in.size() >= least && in.size() <= most) return;
  std::string expected = std::to_string(least);
  if (most != least) expected += " to " + std::to_string(most);
  reject(op, expected + (most == 1 ? " operand" : " operands"), in, attrs);
}

int64_t axis_of(const char* op, int64_t axis, int rank) {
  if (rank == 0)
    throw UserError("[" + std::string(op) + "] expected no axis, received " + std::to_string(axis) +
                    "; a tensor without dimensions has no axes");
  const int64_t from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 0 || from_front >= rank)
    throw UserError("[" + std::string(op) + "] expected an axis from " + std::to_string(-rank) +
                    " to " + std::to_string(rank - 1) + ", received " + std::to_string(axis));
  return from_front;
}

void expect_one_real(const char* op, const Metas& in, const Attrs& attrs) {
  expect_operands(op, 1, 1, in, attrs);
  if (!is_real(in[0].dtype)) reject(op, "a tensor of a floating dtype", in, attrs);
}

Metas checked(const char* op, Metas out) {
  for (const Meta& meta : out) {
    bool fits = true;
    for (Dim dim : meta.shape) fits = fits && dim >= 0;
    try {
      meta.bytes();
    } catch (const UserError&) {
      fits = false;
    }
    if (!fits)
      throw UserError("[" + std::string(op) + "] expected a result below 2^62 bytes, received " +
                      meta.text());
  }
  return out;
}

Dtype dtype_attr(const char* op, const Attrs& attrs) {
  const std::string& name = attrs.text("dtype");
  const auto dtype = dtype_from_name(name);
  if (!dtype)
    throw UserError("[" + std::string(op) + "] expected the name of a dtype, received '" + name +
                    "'");
  return *dtype;
}

Dtype result_dtype(const char* op, Dtype own, const Metas& in, const Attrs& attrs) {
  if (!attrs.has("dtype")) return own;
  const Dtype dtype = dtype_attr(op, attrs);
  if (dtype != own && dtype != wide(own))
    reject(op, "a result of the operands' dtype or float32", in, attrs);
  return dtype;
}

}  // namespace pl

// Layers that join several inputs: Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate,
// Dot.
#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/broadcast.h"
#include "op/functions.h"

namespace pl {
namespace {

void expect_several(const std::vector<Shape>& in) {
  if (in.size() < 2)
    throw UserError("expected a list of at least two inputs, received " +
                    std::to_string(in.size()));
}

Tensor either(const Tensor& a, const Tensor& b) {
  return cast(maximum(cast(a, Dtype::int32), cast(b, Dtype::int32)), Dtype::boolean);
}

// What a merge does with positions of an input that a mask leaves out: as Keras, nothing; takes a
// factor of 1; leaves the other inputs to decide.
enum class Left : uint8_t { in, one, others };

// Two inputs at a time, by NumPy's broadcasting; `average` divides by their number in the end.
struct Merge {
  const char* kind;
  Tensor (*join)(const Tensor&, const Tensor&);
  bool average = false;
  bool two = false;  // exactly
  Left left_out = Left::in;
};

// a where m (B, ..., 1) is 1, b where it is 0.
Tensor choose(const Tensor& m, const Tensor& a, const Tensor& b) {
  return add(multiply(a, m), multiply(b, scale(m, -1, 1)));
}

class MergeLayer final : public PlainLayer {
 public:
  MergeLayer(Merge merge, std::string given_name) : merge_(merge) { name = std::move(given_name); }
  const char* kind() const override { return merge_.kind; }
  Shape build(const std::vector<Shape>& in) override {
    expect_several(in);
    if (merge_.two && in.size() != 2)
      throw UserError("expected a list of two inputs, received " + std::to_string(in.size()));
    Shape out = in[0];
    for (const Shape& shape : in)
      if (shape.rank() != out.rank() || !broadcast_shapes(out, shape, &out))
        throw UserError("expected inputs of one shape, or of shapes that broadcast, received " +
                        in[0].text() + " and " + shape.text());
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    Tensor result = call.in[0];
    if (merge_.left_out == Left::one) return masked_product(call);
    if (merge_.left_out == Left::others) return masked_join(call);
    for (const Tensor& next : call.in.subspan(1)) result = merge_.join(result, next);
    return merge_.average ? scale(result, 1 / static_cast<double>(call.in.size())) : result;
  }
  // Keras's: a position counts if it does in any input; inputs without a mask take it away.
  Tensor compute_mask(const LayerCall& call) const override {
    Tensor mask = call.mask(0);
    for (size_t i = 1; i < call.in.size() && mask.defined(); ++i)
      mask = call.mask(i).defined() ? either(mask, call.mask(i)) : Tensor();
    return mask;
  }

 private:
  // 1 where a position of input i counts, (B, ..., 1); undefined without a mask for positions.
  static Tensor counting(const LayerCall& call, size_t i) {
    const Tensor mask = call.mask(i);
    const Tensor& x = call.in[i];
    if (!mask.defined() || mask.shape().rank() + 1 != x.shape().rank()) return {};
    std::vector<Dim> dims = mask.shape().dims();
    dims.push_back(1);
    return reshape(cast(mask, x.dtype()), std::move(dims));
  }

  Tensor masked_product(const LayerCall& call) const {
    Tensor result, any;
    bool all = true;
    for (size_t i = 0; i < call.in.size(); ++i) {
      Tensor x = call.in[i];
      const Tensor m = counting(call, i);
      if (m.defined()) x = add(multiply(x, m), scale(m, -1, 1));
      all = all && m.defined();
      if (all) any = any.defined() ? maximum(any, m) : m;
      result = result.defined() ? multiply(result, x) : x;
    }
    return all ? multiply(result, any) : result;
  }

  Tensor masked_join(const LayerCall& call) const {
    Tensor result = call.in[0], counts = counting(call, 0);
    for (size_t i = 1; i < call.in.size(); ++i) {
      Tensor x = call.in[i];
      const Tensor m = counting(call, i);
      if (m.defined()) x = choose(m, x, result);
      if (counts.defined()) result = choose(counts, result, x);
      counts = m.defined() && counts.defined() ? maximum(counts, m) : Tensor();
      result = merge_.join(result, x);
    }
    return result;
  }

  Merge merge_;
};

class ConcatenateLayer final : public PlainLayer {
 public:
  ConcatenateLayer(int64_t axis, std::string given_name) : axis_(axis) {
    name = std::move(given_name);
  }
  const char* kind() const override { return "Concatenate"; }
  std::string config() const override { return "axis " + std::to_string(axis_); }

  // Keras counts the batch as axis 0.
  Shape build(const std::vector<Shape>& in) override {
    expect_several(in);
    const int64_t rank = in[0].rank() + 1, axis = axis_ < 0 ? axis_ + rank : axis_;
    if (axis < 1 || axis >= rank)
      throw UserError("expected an axis behind the batch, below " + std::to_string(rank) +
                      ", received " + std::to_string(axis_));
    Metas metas;
    for (const Shape& shape : in) metas.push_back({Dtype::float32, shape.with_front(1)});
    return kConcatenate
        .infer(metas, {{"axis", axis}, {"parts", static_cast<int64_t>(in.size())}})[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return concatenate(Tensors(call.in.begin(), call.in.end()), axis_);
  }
  // Features beside each other count where any does; positions one after the other keep their own.
  Tensor compute_mask(const LayerCall& call) const override {
    bool any = false, all = true;
    for (size_t i = 0; i < call.in.size(); ++i) {
      any = any || call.mask(i).defined();
      all = all && call.mask(i).defined();
    }
    const int64_t rank = call.in[0].shape().rank(), axis = axis_ < 0 ? axis_ + rank : axis_;
    if (!any || (axis == rank - 1 && !all)) return Tensor();
    if (axis == rank - 1) {
      Tensor mask = call.mask(0);
      for (size_t i = 1; i < call.in.size(); ++i) mask = either(mask, call.mask(i));
      return mask;
    }
    Tensors parts;
    for (size_t i = 0; i < call.in.size(); ++i) {
      const Shape& shape = call.in[i].shape();
      const Shape positions{shape[0], shape[1]};
      parts.push_back(call.mask(i).defined() ? cast(call.mask(i), Dtype::float32)
                                             : fill(positions, 1, Dtype::float32, true));
    }
    return cast(concatenate(parts, axis), Dtype::boolean);
  }

 private:
  int64_t axis_;
};

// Products along one axis of each input: x (B, ..., K, ...) and y (B, ..., K, ...) become the other
// dimensions of x, then those of y.
class DotLayer final : public PlainLayer {
 public:
  DotLayer(Pair axes, DotOptions options) : axes_(axes.value), normalize_(options.normalize) {
    set_common(*this, options);
  }
  const char* kind() const override { return "Dot"; }
  std::string config() const override {
    return "axes " + std::to_string(axes_[0]) + ", " + std::to_string(axes_[1]);
  }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 2)
      throw UserError("expected a list of two inputs, received " + std::to_string(in.size()));
    Shape out;
    std::vector<Dim> dims;
    Dim along[2];
    for (size_t i = 0; i < 2; ++i) {
      const int rank = in[i].rank() + 1, axis = axis_of(i, rank);
      if (axis < 1 || axis >= rank)
        throw UserError("expected axes behind the batch, received " + std::to_string(axes_[i]) +
                        " for " + in[i].text());
      along[i] = in[i][axis - 1];
      for (int d = 0; d < in[i].rank(); ++d)
        if (d != axis - 1) dims.push_back(in[i][d]);
    }
    if (along[0] != along[1])
      throw UserError("expected equal sizes along the axes, received " + in[0].text() + " and " +
                      in[1].text());
    return dims.empty() ? Shape{1} : Shape(std::move(dims));
  }

  Tensor call(const LayerCall& call) const override {
    const Dim batch = call.in[0].shape()[0];
    std::vector<Dim> dims{batch};
    const Tensor x = matrix(call.in[0], 0, dims), y = matrix(call.in[1], 1, dims);
    const Tensor products = batch_matmul(x, y, {.transpose_b = true});  // (B, M, N)
    if (dims.size() == 1) dims.push_back(1);
    return reshape(products, std::move(dims));
  }

 private:
  int axis_of(size_t i, int rank) const {
    return static_cast<int>(axes_[i] < 0 ? axes_[i] + rank : axes_[i]);
  }
  // x as (B, others, K); appends the other dimensions to `dims`.
  Tensor matrix(Tensor x, size_t i, std::vector<Dim>& dims) const {
    const int rank = x.shape().rank(), axis = axis_of(i, rank);
    if (normalize_) x = unit_length(x, {axis});
    const Dim along = x.shape()[axis];
    std::vector<int64_t> order;
    for (int d = 0; d < rank; ++d)
      if (d != axis) order.push_back(d);
    order.push_back(axis);
    Dim others = 1;
    for (int d = 1; d < rank; ++d)
      if (d != axis) {
        dims.push_back(x.shape()[d]);
        others *= x.shape()[d];
      }
    const Dim batch = x.shape()[0];
    if (axis != rank - 1) x = transpose(x, order);
    return reshape(x, {batch, others, along});
  }

  std::array<int64_t, 2> axes_;
  bool normalize_;
};

LayerRef merge(Merge kind, std::string name) {
  return LayerRef(std::make_shared<MergeLayer>(kind, std::move(name)));
}

}  // namespace

LayerRef Add(std::string name) { return merge({"Add", add}, std::move(name)); }
LayerRef Subtract(std::string name) {
  return merge({.kind = "Subtract", .join = subtract, .two = true}, std::move(name));
}
LayerRef Multiply(std::string name) {
  return merge({.kind = "Multiply", .join = multiply, .left_out = Left::one}, std::move(name));
}
LayerRef Average(std::string name) { return merge({"Average", add, true}, std::move(name)); }
LayerRef Maximum(std::string name) {
  return merge({.kind = "Maximum", .join = maximum, .left_out = Left::others}, std::move(name));
}
LayerRef Minimum(std::string name) {
  return merge({.kind = "Minimum", .join = minimum, .left_out = Left::others}, std::move(name));
}
LayerRef Concatenate(int64_t axis, std::string name) {
  return LayerRef(std::make_shared<ConcatenateLayer>(axis, std::move(name)));
}
LayerRef Dot(Pair axes, DotOptions options) {
  return LayerRef(std::make_shared<DotLayer>(axes, std::move(options)));
}

}  // namespace pl

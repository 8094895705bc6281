// How tests/ops_words_test.cc calls each word of ops::, and how near its results must be.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/ops_words.h"

namespace pl::test {

// What a result is held against, beside a part of itself.
enum class Nearness : uint8_t {
  exact,    // nothing
  itself,   // its own size
  unit,     // 1
  operand,  // the largest operand of the element
  sum,      // the sum of its terms' sizes: the word of operands without signs
  most,     // the largest element of the operand, at least 1
  square,   // its square
};

struct Word {
  std::function<Tensors(const WordArguments&)> call;
  Nearness near = Nearness::exact;
};
using Words = std::map<std::string, Word>;

inline void add_elementwise(Words& words) {
  using Unary = Tensor (*)(const Tensor&);
  using Binary = Tensor (*)(const ops::Operand&, const ops::Operand&);
  auto unary = [&](const char* name, Unary run, Nearness near = Nearness::exact) {
    words[name] = {[=](const WordArguments& a) { return Tensors{run(a.tensor(0))}; }, near};
  };
  auto binary = [&](const char* name, Binary run, Nearness near = Nearness::exact) {
    words[name] = {[=](const WordArguments& a) { return Tensors{run(a.operand(0), a.operand(1))}; },
                   near};
  };
  binary("add", ops::add, Nearness::itself);
  binary("subtract", ops::subtract, Nearness::itself);
  binary("multiply", ops::multiply, Nearness::itself);
  binary("divide", ops::divide, Nearness::itself);
  binary("true_divide", ops::true_divide, Nearness::itself);
  binary("floor_divide", ops::floor_divide);
  binary("mod", ops::mod, Nearness::operand);
  binary("maximum", ops::maximum);
  binary("minimum", ops::minimum);
  binary("power", ops::power, Nearness::itself);
  binary("pow", ops::pow, Nearness::itself);
  binary("squared_difference", ops::squared_difference, Nearness::itself);
  binary("equal", ops::equal);
  binary("not_equal", ops::not_equal);
  binary("less", ops::less);
  binary("less_equal", ops::less_equal);
  binary("greater", ops::greater);
  binary("greater_equal", ops::greater_equal);

  unary("negative", ops::negative);
  unary("abs", ops::abs);
  unary("absolute", ops::absolute);
  unary("sign", ops::sign);
  unary("square", ops::square, Nearness::itself);
  unary("sqrt", ops::sqrt, Nearness::itself);
  unary("rsqrt", ops::rsqrt, Nearness::itself);
  unary("reciprocal", ops::reciprocal, Nearness::itself);
  unary("exp", ops::exp, Nearness::itself);
  unary("expm1", ops::expm1, Nearness::itself);
  unary("log", ops::log, Nearness::itself);
  unary("log1p", ops::log1p, Nearness::itself);
  unary("log2", ops::log2, Nearness::itself);
  unary("log10", ops::log10, Nearness::itself);
  unary("sin", ops::sin, Nearness::unit);
  unary("cos", ops::cos, Nearness::unit);
  unary("tanh", ops::tanh, Nearness::itself);
  unary("sigmoid", ops::sigmoid, Nearness::itself);
  unary("softplus", ops::softplus, Nearness::itself);
  unary("relu", ops::relu);
  unary("floor", ops::floor);
  unary("ceil", ops::ceil);
  unary("round", ops::round);
  unary("trunc", ops::trunc);
  unary("logical_not", ops::logical_not);
  unary("isnan", ops::isnan);
  unary("isfinite", ops::isfinite);
  unary("isinf", ops::isinf);
  unary("ravel", ops::ravel);
  unary("stop_gradient", ops::stop_gradient);
  unary("zeros_like", ops::zeros_like);
  unary("ones_like", ops::ones_like);

  words["clip"] = {[](const WordArguments& a) {
    return Tensors{ops::clip(a.tensor(0), a.operand(1), a.operand(2))};
  }};
  words["where"] = {[](const WordArguments& a) {
    return Tensors{ops::where(a.tensor(0), a.operand(1), a.operand(2))};
  }};
  words["logical_and"] = {
      [](const WordArguments& a) { return Tensors{ops::logical_and(a.tensor(0), a.tensor(1))}; }};
  words["logical_or"] = {
      [](const WordArguments& a) { return Tensors{ops::logical_or(a.tensor(0), a.tensor(1))}; }};
}

inline void add_reductions(Words& words) {
  using Reduction = Tensor (*)(const Tensor&, const ops::Axis&, bool);
  using Search = Tensor (*)(const Tensor&, std::optional<int64_t>, bool);
  auto reduction = [&](const char* name, Reduction run, Nearness near) {
    words[name] = {
        [=](const WordArguments& a) { return Tensors{run(a.tensor(0), a.axis(1), a.flag(2))}; },
        near};
  };
  auto search = [&](const char* name, Search run) {
    words[name] = {[=](const WordArguments& a) {
      const auto& axis = a.list(1);
      return Tensors{
          run(a.tensor(0), axis.empty() ? std::nullopt : std::optional(axis[0]), a.flag(2))};
    }};
  };
  reduction("sum", ops::sum, Nearness::sum);
  reduction("mean", ops::mean, Nearness::sum);
  reduction("max", ops::max, Nearness::exact);
  reduction("min", ops::min, Nearness::exact);
  reduction("prod", ops::prod, Nearness::itself);
  reduction("var", ops::var, Nearness::square);
  reduction("std", ops::std, Nearness::most);
  reduction("logsumexp", ops::logsumexp, Nearness::most);
  reduction("norm", ops::norm, Nearness::itself);
  reduction("any", ops::any, Nearness::exact);
  reduction("all", ops::all, Nearness::exact);
  search("argmax", ops::argmax);
  search("argmin", ops::argmin);
  words["count_nonzero"] = {
      [](const WordArguments& a) { return Tensors{ops::count_nonzero(a.tensor(0), a.axis(1))}; }};
  words["cumsum"] = {
      [](const WordArguments& a) { return Tensors{ops::cumsum(a.tensor(0), a.integer(1))}; },
      Nearness::sum};
}

inline void add_shapes(Words& words) {
  using A = const WordArguments&;
  words["reshape"] = {[](A a) { return Tensors{ops::reshape(a.tensor(0), a.list(1))}; }};
  words["transpose"] = {[](A a) { return Tensors{ops::transpose(a.tensor(0), a.list(1))}; }};
  words["swapaxes"] = {
      [](A a) { return Tensors{ops::swapaxes(a.tensor(0), a.integer(1), a.integer(2))}; }};
  words["moveaxis"] = {
      [](A a) { return Tensors{ops::moveaxis(a.tensor(0), a.integer(1), a.integer(2))}; }};
  words["expand_dims"] = {[](A a) { return Tensors{ops::expand_dims(a.tensor(0), a.integer(1))}; }};
  words["squeeze"] = {[](A a) { return Tensors{ops::squeeze(a.tensor(0), a.axis(1))}; }};
  words["broadcast_to"] = {[](A a) { return Tensors{ops::broadcast_to(a.tensor(0), a.shape(1))}; }};
  words["concatenate"] = {[](A a) { return Tensors{ops::concatenate(a.tensors(), a.integer(0))}; }};
  words["stack"] = {[](A a) { return Tensors{ops::stack(a.tensors(), a.integer(0))}; }};
  words["unstack"] = {[](A a) { return ops::unstack(a.tensor(0), a.integer(1)); }};
  words["split"] = {[](A a) { return ops::split(a.tensor(0), a.integer(1), a.integer(2)); }};
  words["slice"] = {[](A a) { return Tensors{ops::slice(a.tensor(0), a.list(1), a.list(2))}; }};
  words["take"] = {[](A a) {
    return a.is_tensor(1) ? Tensors{ops::take(a.tensor(0), a.tensor(1), a.integer(2))}
                          : Tensors{ops::take(a.tensor(0), a.integer(1), a.integer(2))};
  }};
  words["take_along_axis"] = {
      [](A a) { return Tensors{ops::take_along_axis(a.tensor(0), a.tensor(1), a.integer(2))}; }};
  words["repeat"] = {
      [](A a) { return Tensors{ops::repeat(a.tensor(0), a.integer(1), a.integer(2))}; }};
  words["tile"] = {[](A a) { return Tensors{ops::tile(a.tensor(0), a.list(1))}; }};
  words["roll"] = {[](A a) { return Tensors{ops::roll(a.tensor(0), a.integer(1), a.integer(2))}; }};
  words["pad"] = {[](A a) {
    std::vector<std::pair<Dim, Dim>> width;
    for (size_t i = 0; i + 1 < a.list(1).size(); i += 2)
      width.emplace_back(a.list(1)[i], a.list(1)[i + 1]);
    return a.with_number(2,
                         [&](auto value) { return Tensors{ops::pad(a.tensor(0), width, value)}; });
  }};
  words["flip"] = {[](A a) { return Tensors{ops::flip(a.tensor(0), a.axis(1))}; }};
  words["argsort"] = {[](A a) { return Tensors{ops::argsort(a.tensor(0), a.integer(1))}; }};
  words["sort"] = {[](A a) { return Tensors{ops::sort(a.tensor(0), a.integer(1))}; }};
  words["top_k"] = {[](A a) {
    const ops::TopK top = ops::top_k(a.tensor(0), a.integer(1));
    return Tensors{top.values, top.indices};
  }};
}

inline void add_products(Words& words) {
  using A = const WordArguments&;
  words["matmul"] = {[](A a) { return Tensors{ops::matmul(a.tensor(0), a.tensor(1))}; },
                     Nearness::sum};
  words["dot"] = {[](A a) { return Tensors{ops::dot(a.tensor(0), a.tensor(1))}; }, Nearness::sum};
  words["outer"] = {[](A a) { return Tensors{ops::outer(a.tensor(0), a.tensor(1))}; },
                    Nearness::itself};
  words["einsum"] = {[](A a) { return Tensors{ops::einsum(a.text(0), a.tensors())}; },
                     Nearness::sum};
  words["softmax"] = {[](A a) { return Tensors{ops::softmax(a.tensor(0), a.integer(1))}; },
                      Nearness::itself};
  words["log_softmax"] = {[](A a) { return Tensors{ops::log_softmax(a.tensor(0), a.integer(1))}; },
                          Nearness::most};
  words["normalize"] = {
      [](A a) {
        return Tensors{a.size() < 3 ? ops::normalize(a.tensor(0), a.integer(1))
                                    : ops::normalize(a.tensor(0), a.integer(1), a.real(2))};
      },
      Nearness::itself};
}

inline void add_values(Words& words) {
  using A = const WordArguments&;
  words["one_hot"] = {
      [](A a) { return Tensors{ops::one_hot(a.tensor(0), a.integer(1), a.dtype(2))}; }};
  words["cast"] = {[](A a) { return Tensors{ops::cast(a.tensor(0), a.text(1))}; },
                   Nearness::itself};
  words["zeros"] = {[](A a) { return Tensors{ops::zeros(a.shape(0), a.dtype(1))}; }};
  words["ones"] = {[](A a) { return Tensors{ops::ones(a.shape(0), a.dtype(1))}; }};
  words["full"] = {[](A a) {
    return a.with_number(
        1, [&](auto value) { return Tensors{ops::full(a.shape(0), value, a.dtype(2))}; });
  }};
  words["full_like"] = {[](A a) {
    return a.with_number(1,
                         [&](auto value) { return Tensors{ops::full_like(a.tensor(0), value)}; });
  }};
  words["arange"] = {[](A a) { return Tensors{ops::arange(a.integer(0), a.dtype(1))}; }};
  words["linspace"] = {
      [](A a) { return Tensors{ops::linspace(a.real(0), a.real(1), a.integer(2), a.dtype(3))}; },
      Nearness::operand};
  words["eye"] = {[](A a) { return Tensors{ops::eye(a.integer(0), a.dtype(1))}; }};
  words["constant"] = {[](A a) {
    return a.with_number(0, [&](auto value) { return Tensors{pl::constant(value, a.dtype(1))}; });
  }};
}

inline Words words_of_ops() {
  Words words;
  add_elementwise(words);
  add_reductions(words);
  add_shapes(words);
  add_products(words);
  add_values(words);
  return words;
}

}  // namespace pl::test

// Every word of ops:: with arguments that nobody means: an answer, or an error of the engine's that
// names the word and costs no memory.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <optional>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "op/ops.h"
#include "op/recorder.h"
#include "op/runtime.h"
#include "tests/own_process.h"

namespace pl::ops_hostile_test {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 40;
const std::vector<int64_t> kOdd{kLeast, -kHuge, -2, -1, 0, 1, 3, 64, 65, kHuge, kMost};

using T = const Tensor&;
using Call = std::function<void()>;

class Words {
 public:
  void add(const std::string& word, Call call) { calls_.emplace_back(word, std::move(call)); }
  template <class F>
  void tensors(const std::string& word, const F& f) {
    for (const Tensor& x : odd_) add(word, [=] { f(x); });
  }
  template <class F>
  void pairs(const std::string& word, const F& f) {
    for (const Tensor& a : odd_)
      for (const Tensor& b : odd_) add(word, [=] { f(a, b); });
  }
  template <class F>
  void numbers(const std::string& word, const F& f) {
    for (const Tensor& x : odd_)
      for (int64_t n : kOdd) add(word, [=] { f(x, n); });
  }
  template <class F>
  void sizes(const std::string& word, const F& f) {
    for (int64_t n : kOdd) add(word, [=] { f(n); });
  }
  const auto& calls() const { return calls_; }
  const Tensors& odd() const { return odd_; }

 private:
  const Tensors odd_{
      Tensor(),
      constant(2),
      constant({{1, 2}, {3, 4}}),
      constant({1, 0, 1}, Dtype::boolean),
      constant({1, 2, 3}, Dtype::int64),
      ops::zeros({0}),
      ops::zeros({0, kHuge}),
      ops::zeros({kHuge, 0}, Dtype::int32),
      ops::zeros({1, 1, 2, 0, 3}, Dtype::uint8),
      ops::reshape(constant({5, 6}), Shape(std::vector<Dim>(99, 1)).with_front(2).dims())};
  std::vector<std::pair<std::string, Call>> calls_;
};

void add_elementwise(Words& all) {
  using Unary = Tensor (*)(T);
  for (const auto& [word, f] :
       std::vector<std::pair<const char*, Unary>>{{"negative", ops::negative},
                                                  {"abs", ops::abs},
                                                  {"absolute", ops::absolute},
                                                  {"sign", ops::sign},
                                                  {"square", ops::square},
                                                  {"sqrt", ops::sqrt},
                                                  {"rsqrt", ops::rsqrt},
                                                  {"reciprocal", ops::reciprocal},
                                                  {"exp", ops::exp},
                                                  {"expm1", ops::expm1},
                                                  {"log", ops::log},
                                                  {"log1p", ops::log1p},
                                                  {"log2", ops::log2},
                                                  {"log10", ops::log10},
                                                  {"sin", ops::sin},
                                                  {"cos", ops::cos},
                                                  {"tanh", ops::tanh},
                                                  {"sigmoid", ops::sigmoid},
                                                  {"softplus", ops::softplus},
                                                  {"relu", ops::relu},
                                                  {"floor", ops::floor},
                                                  {"ceil", ops::ceil},
                                                  {"round", ops::round},
                                                  {"trunc", ops::trunc},
                                                  {"logical_not", ops::logical_not},
                                                  {"isnan", ops::isnan},
                                                  {"isfinite", ops::isfinite},
                                                  {"isinf", ops::isinf},
                                                  {"ravel", ops::ravel},
                                                  {"stop_gradient", ops::stop_gradient},
                                                  {"zeros_like", ops::zeros_like},
                                                  {"ones_like", ops::ones_like}})
    all.tensors(word, f);
  using Binary = Tensor (*)(const ops::Operand&, const ops::Operand&);
  for (const auto& [word, f] :
       std::vector<std::pair<const char*, Binary>>{{"add", ops::add},
                                                   {"subtract", ops::subtract},
                                                   {"multiply", ops::multiply},
                                                   {"divide", ops::divide},
                                                   {"true_divide", ops::true_divide},
                                                   {"floor_divide", ops::floor_divide},
                                                   {"mod", ops::mod},
                                                   {"maximum", ops::maximum},
                                                   {"minimum", ops::minimum},
                                                   {"power", ops::power},
                                                   {"pow", ops::pow},
                                                   {"squared_difference", ops::squared_difference},
                                                   {"equal", ops::equal},
                                                   {"not_equal", ops::not_equal},
                                                   {"less", ops::less},
                                                   {"less_equal", ops::less_equal},
                                                   {"greater", ops::greater},
                                                   {"greater_equal", ops::greater_equal}}) {
    all.pairs(word, f);
    all.numbers(word, f);
    all.numbers(word, [f = f](T x, int64_t n) { f(n, x); });
  }
  all.pairs("logical_and", ops::logical_and);
  all.pairs("logical_or", ops::logical_or);
  all.pairs("where", [](T a, T b) { ops::where(a, b, 0); });
  all.pairs("where", [](T a, T b) { ops::where(constant({1, 0}, Dtype::boolean), a, b); });
  all.numbers("clip", [](T x, int64_t n) { ops::clip(x, n, kMost); });
  all.pairs("clip", [](T x, T y) { ops::clip(x, y, 1); });
  all.numbers("full_like", [](T x, int64_t n) { ops::full_like(x, n); });
}

void add_reductions(Words& all) {
  using Reduction = Tensor (*)(T, const ops::Axis&, bool);
  for (const auto& [word, f] :
       std::vector<std::pair<const char*, Reduction>>{{"sum", ops::sum},
                                                      {"mean", ops::mean},
                                                      {"max", ops::max},
                                                      {"min", ops::min},
                                                      {"prod", ops::prod},
                                                      {"var", ops::var},
                                                      {"std", ops::std},
                                                      {"logsumexp", ops::logsumexp},
                                                      {"norm", ops::norm},
                                                      {"any", ops::any},
                                                      {"all", ops::all}}) {
    all.tensors(word, [f = f](T x) { f(x, {}, false); });
    all.numbers(word, [f = f](T x, int64_t n) { f(x, n, true); });
    all.numbers(word, [f = f](T x, int64_t n) { f(x, {n, n}, false); });
  }
  all.tensors("count_nonzero", [](T x) { ops::count_nonzero(x); });
  all.numbers("count_nonzero", [](T x, int64_t n) { ops::count_nonzero(x, n); });
  all.tensors("argmax", [](T x) { ops::argmax(x); });
  all.tensors("argmin", [](T x) { ops::argmin(x); });
  all.tensors("sort", [](T x) { ops::sort(x); });
  all.tensors("flip", [](T x) { ops::flip(x); });
  all.numbers("argmax", [](T x, int64_t n) { ops::argmax(x, n); });
  all.numbers("argmin", [](T x, int64_t n) { ops::argmin(x, n); });
  all.numbers("cumsum", [](T x, int64_t n) { ops::cumsum(x, n); });
  all.numbers("flip", [](T x, int64_t n) { ops::flip(x, n); });
  all.numbers("argsort", [](T x, int64_t n) { ops::argsort(x, n); });
  all.numbers("sort", [](T x, int64_t n) { ops::sort(x, n); });
  all.numbers("top_k", [](T x, int64_t n) { ops::top_k(x, n); });
  all.numbers("softmax", [](T x, int64_t n) { ops::softmax(x, n); });
  all.numbers("log_softmax", [](T x, int64_t n) { ops::log_softmax(x, n); });
  all.numbers("normalize", [](T x, int64_t n) { ops::normalize(x, n); });
  all.pairs("matmul", [](T a, T b) { ops::matmul(a, b); });
  all.pairs("dot", [](T a, T b) { ops::dot(a, b); });
  all.pairs("outer", [](T a, T b) { ops::outer(a, b); });
  for (const char* equation : {"",          "->",     ",",    "i",     "ij->ji",
                               "ii",        "ii->i",  "i,j",  "ij,jk", "...,...",
                               "...i,...i", "i...->", "....", "i->ii", "i->j",
                               "i->j->k",   "0,0",    "i0",   "aaaa",  "i j , j k -> i k",
                               "-",         ">",      "i,i,i"}) {
    all.add("einsum", [=] { ops::einsum(equation, Tensors()); });
    all.tensors("einsum", [=](T x) { ops::einsum(equation, {x}); });
    all.pairs("einsum", [=](T a, T b) { ops::einsum(equation, {a, b}); });
  }
}

void add_shapes(Words& all) {
  all.numbers("reshape", [](T x, int64_t n) { ops::reshape(x, {n}); });
  all.numbers("reshape", [](T x, int64_t n) { ops::reshape(x, {n, 0}); });
  all.numbers("reshape", [](T x, int64_t n) { ops::reshape(x, {n, n, -1}); });
  all.tensors("transpose", [](T x) { ops::transpose(x); });
  all.numbers("transpose", [](T x, int64_t n) { ops::transpose(x, {n, 0}); });
  all.numbers("swapaxes", [](T x, int64_t n) { ops::swapaxes(x, n, 0); });
  all.numbers("swapaxes", [](T x, int64_t n) { ops::swapaxes(x, -1, n); });
  all.numbers("moveaxis", [](T x, int64_t n) { ops::moveaxis(x, n, 0); });
  all.numbers("moveaxis", [](T x, int64_t n) { ops::moveaxis(x, 0, n); });
  all.numbers("expand_dims", [](T x, int64_t n) { ops::expand_dims(x, n); });
  all.tensors("squeeze", [](T x) { ops::squeeze(x); });
  all.numbers("squeeze", [](T x, int64_t n) { ops::squeeze(x, n); });
  all.numbers("broadcast_to", [](T x, int64_t n) { ops::broadcast_to(x, {n}); });
  all.numbers("broadcast_to", [](T x, int64_t n) { ops::broadcast_to(x, {n, 2, 2}); });
  all.add("concatenate", [] { ops::concatenate(Tensors()); });
  all.add("stack", [] { ops::stack(Tensors()); });
  for (int64_t n : kOdd) {
    all.pairs("concatenate", [=](T a, T b) { ops::concatenate({a, b}, n); });
    all.pairs("stack", [=](T a, T b) { ops::stack({a, b}, n); });
    all.pairs("take", [=](T x, T indices) { ops::take(x, indices, n); });
    all.pairs("take_along_axis", [=](T x, T indices) { ops::take_along_axis(x, indices, n); });
    all.numbers("take", [=](T x, int64_t axis) { ops::take(x, n, axis); });
    all.numbers("split", [=](T x, int64_t axis) { ops::split(x, n, axis); });
    all.numbers("repeat", [=](T x, int64_t axis) { ops::repeat(x, n, axis); });
    all.numbers("roll", [=](T x, int64_t axis) { ops::roll(x, n, axis); });
    all.numbers("slice", [=](T x, int64_t m) { ops::slice(x, {n, 0}, {m, -1}); });
    all.numbers("tile", [=](T x, int64_t m) { ops::tile(x, {n, m}); });
    all.numbers("pad", [=](T x, int64_t m) { ops::pad(x, {{n, m}}); });
    all.numbers("pad", [=](T x, int64_t m) { ops::pad(x, {{1, n}, {m, 0}}, kMost); });
  }
  all.numbers("unstack", [](T x, int64_t n) { ops::unstack(x, n); });
  all.numbers("slice", [](T x, int64_t n) { ops::slice(x, {n}, {n}); });
  all.numbers("tile", [](T x, int64_t n) { ops::tile(x, std::vector<int64_t>(3, n)); });
  all.tensors("tile", [](T x) { ops::tile(x, {}); });
  all.tensors("pad", [](T x) { ops::pad(x, {}); });
}

void add_values(Words& all) {
  all.numbers("one_hot", [](T x, int64_t n) { ops::one_hot(x, n); });
  all.numbers("one_hot", [](T x, int64_t n) { ops::one_hot(x, n, Dtype::int64); });
  for (Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::bfloat16, Dtype::float16, Dtype::int32,
                      Dtype::int64, Dtype::uint8, Dtype::boolean}) {
    all.tensors("cast", [=](T x) { ops::cast(x, dtype); });
    all.sizes("zeros", [=](int64_t n) { ops::zeros({n}, dtype); });
    all.sizes("ones", [=](int64_t n) { ops::ones({n, n}, dtype); });
    all.sizes("full", [=](int64_t n) { ops::full({2, n}, n, dtype); });
    all.sizes("arange", [=](int64_t n) { ops::arange(n, dtype); });
    all.sizes("eye", [=](int64_t n) { ops::eye(n, dtype); });
    all.sizes("linspace", [=](int64_t n) { ops::linspace(-3e38, 3e38, n, dtype); });
    all.sizes("constant", [=](int64_t n) { constant(n, dtype); });
    all.sizes("constant", [=](int64_t n) { constant(std::vector<double>{1e300}, {n}, dtype); });
  }
  all.tensors("cast", [](T x) { ops::cast(x, "number"); });
  all.tensors("item", [](T x) { item(x); });
  all.tensors("item", [](T x) { item<int64_t>(x); });
  all.tensors("to_vector", [](T x) { to_vector(x); });
}

// From here on VmHWM is what the process holds now, where the system lets it be reset.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// `traced`: on symbols.
void run(const Words& all, bool traced) {
  int refusals = 0;
  reset_peak();
  for (const auto& [word, call] : all.calls()) {
    const Bytes before = process_peak();
    bool refused = true;
    std::string words;
    Recorder recorder;
    recorder.set_capture(
        [&](T value) { return recorder.input("x", value.meta(), value.shape().rank() > 0); });
    try {
      std::optional<RecorderScope> scope;
      if (traced) scope.emplace(recorder);
      call();
      refused = false;
    } catch (const UserError& error) {
      words = error.what();
      EXPECT_NE(words.find("[" + word + "] "), std::string::npos) << word << ": " << words;
    } catch (const DoesNotFit& error) {
      words = error.what();
      EXPECT_TRUE(words.starts_with("[runtime] ")) << word << ": " << words;
    } catch (const std::exception& error) {
      ADD_FAILURE() << word << ": " << error.what();
    }
    const Bytes most = PLIMSOLL_SANITIZED ? kGiB : kMiB;  // the sanitizer's shadow counts too
    if (refused)
      EXPECT_LE(process_peak() - before, most) << word << ": " << words;
    else
      reset_peak();
    refusals += refused;
  }
  EXPECT_GT(refusals, 5000);
}

void run_all(bool traced = false) {
  Words all;
  add_elementwise(all);
  add_reductions(all);
  add_shapes(all);
  add_values(all);
  run(all, traced);
}

TEST(HostileArguments, AreAnsweredOrRefusedByNameWithinALimit) {
  if (test::ran_in_own_process()) return;
  const Runtime runtime({.memory = "64MiB", .threads = 1});
  run_all();
}

TEST(HostileArguments, AreAnsweredOrRefusedByNameWithoutALimit) {
  if (test::ran_in_own_process()) return;
  const Runtime runtime({.threads = 1});
  run_all();
}

TEST(HostileArguments, AreRecordedOrRefusedByName) {
  if (test::ran_in_own_process()) return;
  run_all(true);
}

}  // namespace
}  // namespace pl::ops_hostile_test

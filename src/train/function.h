// pl::function: a C++ function of tensors that is traced once for each signature, planned, and then
// runs as a plan within the Runtime's memory. Variables that it reads or assigns are variables of
// the plan; a GradientTape and an optimiser work inside.
//
//   auto step = pl::function([&](const Tensor& x, const Tensor& y) {
//     GradientTape tape;
//     const Tensor loss = reduce_mean(square(subtract(matmul(x, w), y)));
//     w.assign_sub(scale(tape.gradient(loss, {w})[0], 0.1));
//     return loss;
//   });
//   for (...) step(x, y);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "op/runtime.h"
#include "trace/tape.h"
#include "trace/variable.h"
#include "train/step_data.h"

namespace pl {

struct FunctionOptions {
  std::string name = "function";
  size_t signatures = 8;  // traces that are kept; the one used longest ago goes first
  // Told, in words, why it is traced again; by default a warning on standard error.
  std::function<void(const std::string&)> on_retrace = nullptr;
};

// What a trace of a function takes.
struct FunctionPlan {
  Bytes arena = 0;         // transient, while it runs
  Bytes variables = 0;     // that it reads or writes
  size_t nodes = 0;        // ops behind fusion
  int64_t split = 1;       // parts in which a batch is worked off
  int64_t recomputed = 0;  // values computed a second time
  double ms = 0;           // predicted
  bool recorded = false;   // calls are launched as a whole: on a GPU, from the second one on
};

class FunctionTraces;

// What the template below is made of.
class FunctionCore {
 public:
  struct Results {
    Tensors tensors;
    std::vector<std::string> names;  // of TensorLogs
  };
  // Given the symbols of all tensors among the arguments.
  using Body = std::function<Results(const Tensors& symbols)>;

  explicit FunctionCore(FunctionOptions options);
  FunctionCore(FunctionCore&&) noexcept;
  FunctionCore& operator=(FunctionCore&&) noexcept;
  ~FunctionCore();

  // `constants`: in text, the arguments that are no tensors; each makes a signature of its own.
  Results call(const Tensors& tensors, const std::vector<std::string>& constants, const Body& body);

  int64_t traces() const;      // so far, dropped ones included
  FunctionPlan plan() const;   // of the signature called last
  static bool inside_trace();  // of another function: the body becomes a part of that
  template <class T>
  static std::string text(T number) {
    if constexpr (std::is_floating_point_v<T>) return real_text(static_cast<double>(number));
    return std::to_string(number);
  }
  static std::string real_text(double number);

 private:
  std::unique_ptr<FunctionTraces> traces_;
};

template <class F>
class Function {
 public:
  Function(F body, FunctionOptions options) : body_(std::move(body)), core_(std::move(options)) {}

  // Arguments: tensors, lists of tensors, variables (read as tensors), numbers, bools and strings.
  // Answers what the function does: nothing, a Tensor, Tensors or TensorLogs.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::invoke_result_t<F&, Bound<Args>...>;
    if (FunctionCore::inside_trace()) return static_cast<Result>(body_(Bound<Args>(args)...));
    Tensors tensors;
    std::vector<std::string> constants;
    (pack(args, tensors, constants), ...);
    FunctionCore::Results results =
        core_.call(tensors, constants, [&](const Tensors& symbols) -> FunctionCore::Results {
          [[maybe_unused]] size_t next = 0;
          // Braces: in the order of the arguments.
          std::tuple<Bound<Args>...> bound{unpack(args, symbols, next)...};
          if constexpr (std::is_void_v<Result>) {
            std::apply(body_, bound);
            return {};
          } else {
            return flatten(std::apply(body_, bound));
          }
        });
    if constexpr (!std::is_void_v<Result>) return rebuild<Result>(std::move(results));
  }

  int64_t traces() const { return core_.traces(); }
  FunctionPlan plan() const { return core_.plan(); }

 private:
  template <class T>
  static constexpr bool kTensor = std::is_convertible_v<const T&, Tensor>;
  template <class T>
  static constexpr bool kTensors = std::is_same_v<T, Tensors>;
  template <class T>
  using Bound = std::conditional_t<kTensor<T>, Tensor, std::decay_t<const T>>;  // "text": a pointer

  template <class T>
  static void pack(const T& arg, Tensors& tensors, std::vector<std::string>& constants) {
    if constexpr (kTensor<T>) {
      tensors.push_back(arg);
    } else if constexpr (kTensors<T>) {
      tensors.insert(tensors.end(), arg.begin(), arg.end());
      constants.push_back(std::to_string(arg.size()) + " tensors");
    } else if constexpr (std::is_arithmetic_v<T>) {
      constants.push_back(FunctionCore::text(arg));
    } else {
      constants.push_back(std::string(arg));
    }
  }
  template <class T>
  static Bound<T> unpack(const T& arg, const Tensors& symbols, size_t& next) {
    if constexpr (kTensor<T>) {
      return symbols[next++];
    } else if constexpr (kTensors<T>) {
      const auto first = symbols.begin() + static_cast<std::ptrdiff_t>(next);
      next += arg.size();
      return Tensors(first, first + static_cast<std::ptrdiff_t>(arg.size()));
    } else {
      return arg;
    }
  }
  template <class R>
  static FunctionCore::Results flatten(const R& result) {
    if constexpr (std::is_same_v<R, TensorLogs>) {
      FunctionCore::Results results;
      for (const auto& [name, tensor] : result) {
        results.names.push_back(name);
        results.tensors.push_back(tensor);
      }
      return results;
    } else if constexpr (kTensors<R>) {
      return {result, {}};
    } else {
      return {{result}, {}};
    }
  }
  template <class R>
  static R rebuild(FunctionCore::Results results) {
    if constexpr (std::is_same_v<R, TensorLogs>) {
      TensorLogs logs;
      for (size_t i = 0; i < results.names.size(); ++i)
        logs.emplace(results.names[i], std::move(results.tensors[i]));
      return logs;
    } else if constexpr (kTensors<R>) {
      return std::move(results.tensors);
    } else {
      return std::move(results.tensors[0]);
    }
  }

  F body_;
  FunctionCore core_;
};

template <class F>
[[nodiscard]] Function<F> function(F body, FunctionOptions options = {}) {
  return Function<F>(std::move(body), std::move(options));
}

}  // namespace pl

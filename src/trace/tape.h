// GradientTape: records what is computed from watched tensors and variables, and differentiates it.
// On values and, in a traced function, on symbols. Tapes nest: an outer one records the gradients
// that an inner one computes, which is how second derivatives are made.
//
//   GradientTape tape;
//   const Tensor loss = reduce_mean(square(subtract(matmul(x, w), y)));
//   const Tensors g = tape.gradient(loss, {w, b});
#pragma once

#include <initializer_list>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "op/observer.h"
#include "trace/variable.h"

namespace pl {

struct TapeOptions {
  bool persistent = false;  // gradient() may be called more than once; until reset() or its end the
                            // tape holds everything it recorded
  bool watch_accessed_variables = true;
};

// What a gradient is asked for.
class GradientSource {
 public:
  GradientSource(const Tensor& tensor) : tensor_(tensor) {}
  GradientSource(const Variable& variable) : variable_(variable) {}
  const Tensor& tensor() const { return tensor_; }
  const Variable& variable() const { return variable_; }
  const Meta& meta() const { return variable_.defined() ? variable_.meta() : tensor_.meta(); }

 private:
  Tensor tensor_;
  Variable variable_;
};

struct GradientSources {
  GradientSources(std::initializer_list<GradientSource> sources) : list(sources) {}
  GradientSources(const std::vector<Variable>& sources) : list(sources.begin(), sources.end()) {}
  GradientSources(const Tensors& sources) : list(sources.begin(), sources.end()) {}
  std::vector<GradientSource> list;
};

enum class UnconnectedGradients : uint8_t { none, zero };

struct GradientOptions {
  Tensor output_gradient = {};  // of the target; undefined: ones
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::none;
};

class GradientTape final : private OpObserver {
 public:
  explicit GradientTape(TapeOptions options = {});
  ~GradientTape();  // what it holds is freed
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  void watch(const Tensor& tensor);  // floating
  void watch(const Variable& variable);

  // d(target)/d(source), summed over the target's elements, for each source. Undefined (or zeros)
  // for a source that the target does not depend on through what was recorded. A tape that is not
  // persistent ends with it, and frees what it holds step by step as it goes. Throws UserError when
  // an op on the way has no gradient.
  Tensors gradient(const Tensor& target, const GradientSources& sources,
                   const GradientOptions& options = {});

  // Nothing is recorded while the answer lives.
  class Pause {
   public:
    explicit Pause(GradientTape& tape) : tape_(tape) { ++tape_.paused_; }
    ~Pause() { --tape_.paused_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    GradientTape& tape_;
  };
  [[nodiscard]] Pause stop_recording() { return Pause(*this); }

  void reset();                                    // forgets everything; recording goes on
  size_t size() const { return entries_.size(); }  // ops recorded
  Bytes held_bytes() const;                        // of the values that it keeps alive

 private:
  struct Key {
    const Recorder* recorder;
    int64_t identity;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.recorder) ^ std::hash<int64_t>()(key.identity);
    }
  };
  struct Entry {
    const Op* op;
    Attrs attrs;
    Tensors in, out;
    std::string path;
  };
  class Walk;
  static Key key_of(const Tensor& tensor) { return {tensor.recorder(), tensor.identity()}; }

  void on_apply(const Op& op, const Tensors& in, const Attrs& attrs, const Tensors& out) override;
  void on_read(const void* variable, const Tensor& value, bool trainable) override;
  bool recording() const override { return paused_ == 0; }

  TapeOptions options_;
  int paused_ = 0;
  bool ended_ = false;
  std::vector<Entry> entries_;
  std::unordered_set<Key, KeyHash> tracked_;                 // watched, or computed from what is
  std::unordered_map<const void*, std::vector<Key>> reads_;  // of variables
};

}  // namespace pl

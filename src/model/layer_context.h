// What calling a layer on tensors means: the model whose call() is running has its weights. Layers
// hold none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"
#include "trace/variable.h"

namespace pl {

class LayerContext {
 public:
  // All results. `training`: the mode, if it is not that of the call around it.
  virtual Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& in,
                       std::optional<bool> training = {}) = 0;
  // Whether it belongs to this model, which then calls itself as usual; others are its layers.
  virtual bool runs(const void* /*model*/) const { return false; }
  static LayerContext* current();  // null outside of a model's call()
  // Whether some context around runs call() on symbols to find its layers and shapes.
  static bool sketching();

 protected:
  explicit LayerContext(bool sketches = false);
  ~LayerContext();

 private:
  LayerContext* previous_;
  bool sketches_;
};

// While call() runs on symbols to find shapes, values are constants; variables too, but for those
// that training would have to move: these throw UserError.
class SketchValues final : public VariableTracer {
 public:
  explicit SketchValues(Recorder& recorder);
  ~SketchValues();
  Tensor read(const std::shared_ptr<VariableState>& variable) override;

 private:
  Tensor constant(const Meta& meta);
  Recorder& recorder_;
};
// What is wrong with reading such a variable in call().
std::string untrained_text(const std::string& variable);

// Where numbers that are drawn in call() or in a step come from (train/random.h).
class RandomScope {
 public:
  RandomScope(const Tensor& step_params, int64_t stream);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
  static RandomScope* current();  // null outside of both
  const Tensor& step_params() const { return params_; }
  int64_t stream() const { return stream_; }
  int64_t next() { return draws_++; }  // how often numbers were drawn there before

 private:
  Tensor params_;
  int64_t stream_;
  int64_t draws_ = 0;
  RandomScope* previous_;
};

// The key of a call's random numbers: `call`, its path and number; of a layer with a seed, that and
// how often the layer was called before in this step.
int64_t random_stream(const Layer& layer, const std::string& call, size_t earlier,
                      const std::string& salt = "");
// How often layers were called.
class CallCounts {
 public:
  size_t next(const Layer& layer) { return counts_[&layer]++; }

 private:
  std::map<const Layer*, size_t> counts_;
};

// Layer::call, with the layers that it calls (Layer::parts) at their weights.
Tensor run_layer(const Layer& layer, const LayerCall& call);
// Runs call() of a layer that is built once on symbols, and makes the layers that it calls parts of
// it. Throws what goes wrong there.
void find_parts(Layer& layer, const std::vector<Shape>& in);

}  // namespace pl

// The two ways in which layers are called on tensors inside of call(): to find and build them, and
// with their part of the weights around. For layer_context.cc and function_layer.cc.
#pragma once

#include <map>

#include "model/layer_context.h"

namespace pl {

class Recorder;

constexpr Dim kSketchBatch = 2;  // of the symbols with which layers are found

// What a sketch finds.
struct FoundLayers {
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<Shape> shapes;        // of their last outputs
  std::vector<int64_t> vocabulary;  // of each input
};

// Builds each layer for the shapes it is called with.
class Building final : public LayerContext {
 public:
  Building(FoundLayers& found, Recorder& recorder, const Tensors& inputs);
  const Tensor& params() const { return params_; }
  Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& given,
               std::optional<bool> training) override;

 private:
  size_t place_of(const std::shared_ptr<Layer>& layer);
  void note_tokens(const Layer& layer, size_t i, const Tensor& given);

  FoundLayers& found_;
  Recorder& recorder_;
  const Tensors& inputs_;
  Tensor params_;
  RandomScope random_;
  size_t calls_ = 0;
};

// Hands each layer its part of the weights.
class Calling final : public LayerContext {
 public:
  // `first`: where the weights of `layers` begin among the outer layer's.
  Calling(const std::vector<std::shared_ptr<Layer>>& layers, const std::string& name,
          const LayerCall& outer, Recorder* recorder, size_t first = 0);
  Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& given,
               std::optional<bool> training) override;
  // Masks go from layer to layer, as in a network; what is computed between them has none.
  Tensor mask_of(const Tensor& tensor) const;

 private:
  // `first`: of its weights.
  Tensors call_at(const Layer& layer, size_t first, const Tensors& given,
                  std::optional<bool> training);
  Tensors cast_inputs(const Layer& layer, const Tensors& in) const;

  const std::vector<std::shared_ptr<Layer>>& layers_;
  const std::string& name_;
  const LayerCall& outer_;
  Recorder* recorder_;
  size_t first_;
  std::map<int64_t, Tensor> masks_;  // by the tensors' identities
  size_t calls_ = 0;
  CallCounts counts_;
};

}  // namespace pl

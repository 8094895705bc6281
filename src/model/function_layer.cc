#include "model/function_layer.h"

#include <algorithm>

#include "base/error.h"
#include "model/layer_calls.h"
#include "model/network.h"
#include "model/weight_home.h"
#include "op/recorder.h"

namespace pl {
namespace {

// One of several results of a FunctionLayer.
class ResultLayer final : public PlainLayer {
 public:
  ResultLayer(std::shared_ptr<const FunctionLayer> of, size_t at) : of_(std::move(of)), at_(at) {
    name = "output_" + std::to_string(at + 1);
  }
  const char* kind() const override { return "Result"; }
  Shape build(const std::vector<Shape>&) override { return of_->results().at(at_); }
  Tensor call(const LayerCall& call) const override {
    return at_ == 0 ? call.in[0] : call.more_of_in[0].at(at_ - 1);
  }
  Tensor compute_mask(const LayerCall& call) const override {
    return call.result_masks_of_in[0].at(at_);
  }

 private:
  std::shared_ptr<const FunctionLayer> of_;
  size_t at_;
};

}  // namespace

FunctionLayer::FunctionLayer(std::string kind, std::function<Body()> body)
    : kind_(std::move(kind)), body_(std::move(body)) {}

void FunctionLayer::find_layers(const std::vector<Shape>& in, const std::vector<bool>& integers) {
  Recorder recorder;
  const RecorderScope scope(recorder);
  Tensors x, y;
  for (size_t i = 0; i < in.size(); ++i)
    x.push_back(recorder.input(
        "x" + std::to_string(i),
        {integers[i] ? Dtype::int32 : Dtype::float32, in[i].with_front(kSketchBatch)}, true));
  FoundLayers found{.layers = {}, .shapes = {}, .vocabulary = std::vector<int64_t>(in.size(), 0)};
  results_.clear();
  {
    const SketchValues values(recorder);
    Building building(found, recorder, x);
    y = body_()(x, false);
  }
  layers_ = std::move(found.layers);
  shapes_ = std::move(found.shapes);
  vocabulary_ = std::move(found.vocabulary);
  for (const Tensor& result : y) {
    if (!result.is_symbol() || result.shape().rank() < 1 || result.shape()[0] != kSketchBatch)
      throw UserError("expected call() to answer tensors with a row for each sample, received " +
                      (result.defined() ? result.meta().text() : "nothing"));
    results_.push_back(result.shape().without_front());
  }
  if (y.empty()) throw UserError("expected call() to answer a tensor, received none");
  for (size_t i = 0; i < in.size(); ++i)
    if (integers[i] && vocabulary_[i] == 0) vocabulary_[i] = kAnyInteger;
}

Shape FunctionLayer::build(const std::vector<Shape>& in) {
  std::vector<bool> integers;
  for (size_t i = 0; i < in.size(); ++i)
    integers.push_back(i < expected_.size() &&
                       (expected_[i] == Dtype::int32 || expected_[i] == Dtype::int64));
  bool found = false;
  if (std::find(integers.begin(), integers.end(), true) != integers.end()) try {
      find_layers(in, integers);
      found = true;
    } catch (const UserError&) {  // ops that take no integers: as numbers, then
    }
  if (!found) {
    find_layers(in, std::vector<bool>(in.size(), false));
    for (size_t i = 0; i < in.size(); ++i) integers[i] = vocabulary_[i] > 0;
    if (std::find(integers.begin(), integers.end(), true) != integers.end())
      find_layers(in, integers);
  }
  for (const auto& [layer, shapes] : also_) {
    if (std::find(layers_.begin(), layers_.end(), layer) != layers_.end()) continue;
    layers_.push_back(layer);
    name_layers(layers_);
    shapes_.push_back(build_layer(*layer, shapes));
  }
  weights_.clear();
  for (const auto& layer : layers_)
    for (const Weight& weight : layer->weights()) {
      weights_.push_back(weight);
      weights_.back().name = layer->name + "/" + weight.name;
      if (layer->dtype) weights_.back().dtype = layer->dtype;
    }
  return results_[0];
}

std::vector<Symbolic> FunctionLayer::connect(const std::shared_ptr<Layer>& self,
                                             const std::vector<Symbolic>& in) {
  const std::vector<Symbolic> first = Layer::connect(self, in);
  if (results_.size() == 1) return first;
  std::vector<Symbolic> all;
  const auto function = std::static_pointer_cast<const FunctionLayer>(self);
  for (size_t r = 0; r < results_.size(); ++r)
    all.push_back(LayerRef(std::make_shared<ResultLayer>(function, r))(first[0]));
  return all;
}

Tensor FunctionLayer::call(const LayerCall& call) const {
  Calling calling(layers_, name, call, call.in[0].recorder());
  Tensors results = body_()(Tensors(call.in.begin(), call.in.end()), call.training);
  check(results.size() == results_.size(), "call() gives as many results as when it was built");
  if (call.result_masks)
    for (const Tensor& result : results) call.result_masks->push_back(calling.mask_of(result));
  if (call.more) call.more->assign(results.begin() + 1, results.end());
  return results[0];
}

std::vector<LayerMember> FunctionLayer::members() const {
  std::vector<LayerMember> list;
  size_t next = 0;
  for (size_t m = 0; m < layers_.size(); ++m) {
    LayerMember member{layers_[m], layers_[m]->name, {}, shapes_[m]};
    for (size_t w = 0; w < layers_[m]->weights().size(); ++w) member.weights.push_back(next++);
    list.push_back(std::move(member));
  }
  return list;
}

// Layers that call() uses are frozen one by one.
bool FunctionLayer::trains(size_t index) const {
  for (const auto& layer : layers_) {
    const size_t count = layer->weights().size();
    if (index < count) return trainable && layer->trains(index);
    index -= count;
  }
  return trainable;
}

}  // namespace pl

// remat: checkpointing by hand, in Keras's words. What a layer or a function computes on the way
// is not held for the backward part but computed again from what it reads. The planner does as
// much by itself where memory is short; this is for those who want to choose.
//
//   x = remat(Dense(512, {.activation = "gelu"}))(x);                      a layer
//   auto f = remat("tail", [](const Tensor& x) { return tanh(exp(x)); });  a function of tensors
//   model.compile({..., .remat = {"block_*"}});                            by name
//   RematScope scope({.mode = "larger_than"});    Keras's: the layers made while it lives
#pragma once

#include <concepts>
#include <string>
#include <utility>

#include "model/layer.h"
#include "op/recorder.h"

namespace pl {

inline LayerRef remat(LayerRef layer) {
  layer->remat = true;
  return layer;
}

class RematScope {
 public:
  // All that is recorded while it lives belongs to one scope. Without a trace it does nothing.
  template <std::convertible_to<std::string> Name>  // a template: {.mode = ...} is no name
  explicit RematScope(const Name& name)
      : path_(RecorderScope::current(), "remat:" + std::string(name)) {}
  // Keras's: for layers made while it lives. "full": each of them; "larger_than": those whose
  // output has more elements a sample than the threshold; "list_of_layers": those named;
  // "activations": of each its activation function alone. The innermost scope counts; an empty
  // mode is none. Throws UserError.
  explicit RematScope(RematRule rule);
  ~RematScope();
  RematScope(const RematScope&) = delete;
  RematScope& operator=(const RematScope&) = delete;

 private:
  PathScope path_;
  std::shared_ptr<const RematRule> previous_ = nullptr;
  bool rules_ = false;
};

// While a layer of mode "activations" is called: activate() makes a scope of what it does.
class RematActivations {
 public:
  explicit RematActivations(const Layer& layer);
  ~RematActivations();
  RematActivations(const RematActivations&) = delete;
  RematActivations& operator=(const RematActivations&) = delete;
  static bool wanted();

 private:
  bool previous_;
};

// A function whose calls within one trace share a scope.
template <typename Function>
auto remat(std::string name, Function function) {
  return [name = std::move(name), function = std::move(function)](auto&&... arguments) {
    RematScope scope(name);
    return function(std::forward<decltype(arguments)>(arguments)...);
  };
}

}  // namespace pl

// remat: checkpointing by hand, in Keras's words. What a layer or a function computes on the way
// is not held for the backward part but computed again from what it reads. The planner does as
// much by itself where memory is short; this is for those who want to choose.
//
//   x = remat(Dense(512, {.activation = "gelu"}))(x);                      a layer
//   auto f = remat("tail", [](const Tensor& x) { return tanh(exp(x)); });  a function of tensors
//   model.compile({..., .remat = {"block_*"}});                            by name
#pragma once

#include <string>
#include <utility>

#include "model/layer.h"
#include "op/recorder.h"

namespace pl {

inline LayerRef remat(LayerRef layer) {
  layer->remat = true;
  return layer;
}

// All that is recorded while it lives belongs to one scope. Without a trace it does nothing.
class RematScope {
 public:
  explicit RematScope(const std::string& name) : path_(RecorderScope::current(), "remat:" + name) {}

 private:
  PathScope path_;
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

// The rules of a layer's weights, by the names that its options have for them.
#pragma once

#include "model/layer.h"

namespace pl {

void set_dtype(Layer& layer, const std::string& policy);  // LayerRef::dtype(); throws UserError

// What all options have.
template <class Options>
void set_common(Layer& layer, const Options& o) {
  layer.name = o.name;
  set_dtype(layer, o.dtype);
  layer.trainable = o.trainable;
  if constexpr (requires { o.seed; }) layer.seed = o.seed;
}

template <class Options>
WeightRules kernel_rules(const Options& o) {
  return {o.kernel_initializer, o.kernel_regularizer, o.kernel_constraint};
}
template <class Options>
WeightRules bias_rules(const Options& o) {
  return {o.bias_initializer, o.bias_regularizer, o.bias_constraint};
}
template <class Options>
WeightRules depthwise_rules(const Options& o) {
  return {o.depthwise_initializer, o.depthwise_regularizer, o.depthwise_constraint};
}
template <class Options>
WeightRules pointwise_rules(const Options& o) {
  return {o.pointwise_initializer, o.pointwise_regularizer, o.pointwise_constraint};
}
template <class Options>
WeightRules gamma_rules(const Options& o) {
  return {o.gamma_initializer, o.gamma_regularizer, o.gamma_constraint};
}
template <class Options>
WeightRules beta_rules(const Options& o) {
  return {o.beta_initializer, o.beta_regularizer, o.beta_constraint};
}

}  // namespace pl

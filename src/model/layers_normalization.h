// Normalisations, with Keras's names and defaults. Part of the list in layers.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace pl {

struct LayerNormalizationOptions {
  Axes axis = -1;
  double epsilon = 1e-3;
  bool center = true;  // a beta
  bool scale = true;   // a gamma
  std::string beta_initializer = "zeros";
  std::string gamma_initializer = "ones";
  std::string beta_regularizer = "";
  std::string gamma_regularizer = "";
  std::string beta_constraint = "";
  std::string gamma_constraint = "";
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef LayerNormalization(LayerNormalizationOptions options = {});

// While training, with the moments of the whole batch, whatever the budget; else with moving
// averages of them, which no optimiser touches. Positions that a mask leaves out are no part of
// moments. Channels along another axis than the last cost copies.
struct BatchNormalizationOptions {
  int64_t axis = -1;
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;  // a beta
  bool scale = true;   // a gamma
  std::string beta_initializer = "zeros";
  std::string gamma_initializer = "ones";
  std::string moving_mean_initializer = "zeros";
  std::string moving_variance_initializer = "ones";
  std::string beta_regularizer = "";
  std::string gamma_regularizer = "";
  std::string beta_constraint = "";
  std::string gamma_constraint = "";
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef BatchNormalization(BatchNormalizationOptions options = {});

// Channels in groups, each with mean 0 and variance 1 in each sample. groups -1: one each.
struct GroupNormalizationOptions {
  int64_t groups = 32;
  int64_t axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  std::string beta_initializer = "zeros";
  std::string gamma_initializer = "ones";
  std::string beta_regularizer = "";
  std::string gamma_regularizer = "";
  std::string beta_constraint = "";
  std::string gamma_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef GroupNormalization(GroupNormalizationOptions options = {});
// x over the root of the mean of its squares along the axis, times a scale.
struct RMSNormalizationOptions {
  Axes axis = -1;
  double epsilon = 1e-6;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef RMSNormalization(RMSNormalizationOptions options = {});
LayerRef UnitNormalization(Axes axis = -1, std::string name = "");  // length 1 along the axes

}  // namespace pl

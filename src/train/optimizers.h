// The optimisers, to be called as in Keras: Adam({.learning_rate = 1e-3, .clipnorm = 1.0}). The
// last lines of each struct are what all share (UpdateOptions says what they mean): C++ names
// members of a struct in braces only where they are its own.
#pragma once

#include "train/optimizer.h"

namespace pl {

struct SGDOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef SGD(SGDOptions options = {});

struct RMSpropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef RMSprop(RMSpropOptions options = {});

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Adam(AdamOptions options = {});

struct AdamWOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> weight_decay = 0.004, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef AdamW(AdamWOptions options = {});

struct AdamaxOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Adamax(AdamaxOptions options = {});

struct NadamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Nadam(NadamOptions options = {});

struct AdagradOptions {
  LearningRate learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Adagrad(AdagradOptions options = {});

struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Adadelta(AdadeltaOptions options = {});

struct FtrlOptions {
  LearningRate learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0.0;
  double l2_regularization_strength = 0.0;
  double l2_shrinkage_regularization_strength = 0.0;
  double beta = 0.0;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Ftrl(FtrlOptions options = {});

struct LionOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Lion(LionOptions options = {});

struct LambOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Lamb(LambOptions options = {});

struct AdafactorOptions {
  LearningRate learning_rate = 0.001;
  double beta_2_decay = -0.8;
  double epsilon_1 = 1e-30;
  double epsilon_2 = 1e-3;
  double clip_threshold = 1.0;
  bool relative_step = true;  // as in Keras, of no effect: the rate is never above 1 / sqrt(step)
  std::optional<double> weight_decay = {}, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Adafactor(AdafactorOptions options = {});

// Matrices by their orthogonalised momentum, all else by Adam.
struct MuonOptions {
  LearningRate learning_rate = 0.001;
  double adam_beta_1 = 0.9;
  double adam_beta_2 = 0.999;
  std::optional<double> adam_weight_decay = 0.004;
  double epsilon = 1e-7;
  std::vector<std::string> exclude_layers = {};  // expressions; matched weights are Adam's
  bool exclude_embeddings = true;
  double muon_a = 3.4445, muon_b = -4.7750, muon_c = 2.0315;
  double adam_lr_ratio = 1;
  double momentum = 0.95;
  int ns_steps = 5;
  bool nesterov = true;
  std::optional<double> rms_rate = 0.2;
  std::optional<double> weight_decay = 0.004, clipnorm = {}, clipvalue = {}, global_clipnorm = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = {}, gradient_accumulation_steps = {};
  std::optional<double> loss_scale_factor = {};
};
OptimizerRef Muon(MuonOptions options = {});

// Scales the loss so that small gradients survive 16 bits: skips a step whose gradients are not all
// finite and halves the scale; doubles it after so many finite ones. compile() puts it around the
// optimiser under mixed_float16.
struct LossScaleOptions {
  double initial_scale = 32768;
  int64_t dynamic_growth_steps = 2000;
};
OptimizerRef LossScaleOptimizer(OptimizerRef inner, LossScaleOptions options = {});

// As compile() does it: `optimizer`, under mixed_float16 with loss scaling unless it has its own.
OptimizerRef scaled_for(const Policy& policy, OptimizerRef optimizer);

OptimizerRef optimizer_from_name(const std::string& name);  // Keras's defaults; throws UserError
std::string optimizer_names();                              // "adadelta, adafactor, ..."

}  // namespace pl

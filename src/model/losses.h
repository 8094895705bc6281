// The losses, with Keras's names, options and defaults. Each is also known by name:
// compile({.loss = "huber"}).
#pragma once

#include <optional>

#include "model/loss.h"

namespace pl::losses {

// reduction: "sum_over_batch_size" or "mean" (over all values), "sum", "mean_with_sample_weight"
// (divided by the weights' sum) or "none" (not for training).
struct Options {
  std::string reduction = "sum_over_batch_size";
};
Loss MeanSquaredError(const Options& options = {});
Loss MeanAbsoluteError(const Options& options = {});
Loss MeanAbsolutePercentageError(const Options& options = {});
Loss MeanSquaredLogarithmicError(const Options& options = {});
Loss LogCosh(const Options& options = {});
Loss KLDivergence(const Options& options = {});
Loss Poisson(const Options& options = {});
Loss Hinge(const Options& options = {});
Loss SquaredHinge(const Options& options = {});
Loss CategoricalHinge(const Options& options = {});

struct CosineSimilarityOptions {
  int64_t axis = -1;  // the batch is axis 0
  std::string reduction = "sum_over_batch_size";
};
Loss CosineSimilarity(const CosineSimilarityOptions& options = {});

struct HuberOptions {
  double delta = 1;
  std::string reduction = "sum_over_batch_size";
};
Loss Huber(const HuberOptions& options = {});

struct BinaryCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  std::string reduction = "sum_over_batch_size";
};
Loss BinaryCrossentropy(const BinaryCrossentropyOptions& options = {});

struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  std::string reduction = "sum_over_batch_size";
};
Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options = {});

struct CategoricalCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  std::string reduction = "sum_over_batch_size";
};
Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& options = {});

struct CategoricalFocalCrossentropyOptions {
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  std::string reduction = "sum_over_batch_size";
};
Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options = {});

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class = {};  // positions with this label do not count
  int64_t axis = -1;
  std::string reduction = "sum_over_batch_size";
};
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});

struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;  // between 0 and 1
  std::string reduction = "sum_over_batch_size";
};
Loss CategoricalGeneralizedCrossEntropy(
    const CategoricalGeneralizedCrossEntropyOptions& options = {});

// Sums run over `axis`; empty: over everything, samples included, so that the batch cannot be
// split.
struct DiceOptions {
  std::vector<int64_t> axis = {};
  std::string reduction = "sum_over_batch_size";
};
Loss Dice(const DiceOptions& options = {});

struct TverskyOptions {
  double alpha = 0.5;
  double beta = 0.5;
  std::vector<int64_t> axis = {};
  std::string reduction = "sum_over_batch_size";
};
Loss Tversky(const TverskyOptions& options = {});

// Of logits (batch, steps, classes) and labels (batch, length): class 0 is the blank, and padding
// among the labels.
Loss CTC(const Options& options = {});

// Of embeddings (batch, features) of length 1 and their classes. Every pair of samples counts, so
// that the batch cannot be split.
struct CircleOptions {
  double gamma = 80;
  double margin = 0.4;
  bool remove_diagonal = true;
  std::string reduction = "sum_over_batch_size";
};
Loss Circle(const CircleOptions& options = {});

}  // namespace pl::losses

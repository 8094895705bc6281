// The metrics, with Keras's names, options and defaults. Those without required options are also
// known by name: compile({.metrics = {"accuracy", "auc"}}).
#pragma once

#include <optional>

#include "model/loss.h"
#include "model/metric.h"

namespace pl::metrics {

// ---- means over samples
Metric Accuracy(std::string name = "accuracy");  // how often predictions equal targets
Metric BinaryAccuracy(double threshold = 0.5, std::string name = "binary_accuracy");
Metric CategoricalAccuracy(std::string name = "categorical_accuracy");
Metric SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy");
Metric TopKCategoricalAccuracy(int64_t k = 5, std::string name = "top_k_categorical_accuracy");
Metric SparseTopKCategoricalAccuracy(int64_t k = 5,
                                     std::string name = "sparse_top_k_categorical_accuracy");
Metric RootMeanSquaredError(std::string name = "root_mean_squared_error");
Metric CosineSimilarity(int64_t axis = -1, std::string name = "cosine_similarity");
Metric PearsonCorrelation(int64_t axis = -1, std::string name = "pearson_correlation");
Metric ConcordanceCorrelation(int64_t axis = -1, std::string name = "concordance_correlation");
// A loss as a metric: losses::MeanSquaredError, KLDivergence, BinaryCrossentropy, Hinge, ...
Metric of_loss(const Loss& loss, std::string name = "");
// Losses as metrics; of_loss() takes any other, with its options.
Metric MeanSquaredError(std::string name = "mean_squared_error");
Metric MeanAbsoluteError(std::string name = "mean_absolute_error");
Metric MeanAbsolutePercentageError(std::string name = "mean_absolute_percentage_error");
Metric MeanSquaredLogarithmicError(std::string name = "mean_squared_logarithmic_error");
Metric LogCoshError(std::string name = "logcosh");
Metric KLDivergence(std::string name = "kl_divergence");
Metric Poisson(std::string name = "poisson");
Metric Hinge(std::string name = "hinge");
Metric SquaredHinge(std::string name = "squared_hinge");
Metric CategoricalHinge(std::string name = "categorical_hinge");
Metric BinaryCrossentropy(bool from_logits = false, std::string name = "binary_crossentropy");
Metric CategoricalCrossentropy(bool from_logits = false,
                               std::string name = "categorical_crossentropy");
Metric SparseCategoricalCrossentropy(bool from_logits = false,
                                     std::string name = "sparse_categorical_crossentropy");

// ---- counts at thresholds
// Predictions above the threshold are positive; class_id: of this class alone. With several
// thresholds there are as many numbers (Metric::results).
struct ThresholdOptions {
  double threshold = 0.5;
  std::optional<int64_t> class_id = {};
  std::string name = "";
  std::vector<double> thresholds = {};  // instead of the one
};
Metric TruePositives(const ThresholdOptions& options = {});
Metric FalsePositives(const ThresholdOptions& options = {});
Metric TrueNegatives(const ThresholdOptions& options = {});
Metric FalseNegatives(const ThresholdOptions& options = {});
// top_k: of a row only the k largest are positive, and these whatever the threshold where none is
// given.
struct PrecisionOptions {
  std::optional<double> threshold = {};  // 0.5 without top_k
  std::optional<int64_t> top_k = {};
  std::optional<int64_t> class_id = {};
  std::string name = "";
  std::vector<double> thresholds = {};  // instead of the one
};
Metric Precision(const PrecisionOptions& options = {});
Metric Recall(const PrecisionOptions& options = {});

struct CurveOptions {
  int64_t num_thresholds = 200;
  std::optional<int64_t> class_id = {};
  std::string name = "";
};
Metric SensitivityAtSpecificity(double specificity, const CurveOptions& options = {});
Metric SpecificityAtSensitivity(double sensitivity, const CurveOptions& options = {});
Metric PrecisionAtRecall(double recall, const CurveOptions& options = {});
Metric RecallAtPrecision(double precision, const CurveOptions& options = {});

struct AUCOptions {
  int64_t num_thresholds = 200;
  std::string curve = "ROC";                       // "PR", "PRGAIN"
  std::string summation_method = "interpolation";  // "minoring", "majoring"
  bool multi_label = false;                        // the mean of the areas of all labels
  int64_t num_labels = 0;                          // 0: as many as there are
  std::vector<double> label_weights = {};          // in that mean
  bool from_logits = false;
  std::string name = "auc";
};
Metric AUC(const AUCOptions& options = {});

// ---- sums for each class
struct FBetaScoreOptions {
  std::string average = "macro";  // "micro", "weighted"; "": Keras's None, a number for each class
  double beta = 1;
  std::optional<double> threshold = {};  // none: the largest of a row
  std::string name = "fbeta_score";
};
Metric FBetaScore(const FBetaScoreOptions& options = {});
struct F1ScoreOptions {
  std::string average = "macro";
  std::optional<double> threshold = {};
  std::string name = "f1_score";
};
Metric F1Score(const F1ScoreOptions& options = {});

struct R2ScoreOptions {
  std::string class_aggregation = "uniform_average";  // "variance_weighted_average"
  int64_t num_regressors = 0;
  std::string name = "r2_score";
};
Metric R2Score(const R2ScoreOptions& options = {});

struct IoUOptions {
  std::optional<int64_t> ignore_class = {};
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  std::string name = "";
};
Metric IoU(int64_t num_classes, std::vector<int64_t> target_class_ids,
           const IoUOptions& options = {});
Metric MeanIoU(int64_t num_classes, const IoUOptions& options = {});
Metric OneHotIoU(int64_t num_classes, std::vector<int64_t> target_class_ids,
                 IoUOptions options = {.sparse_y_pred = false});
Metric OneHotMeanIoU(int64_t num_classes, IoUOptions options = {.sparse_y_pred = false});
Metric BinaryIoU(std::vector<int64_t> target_class_ids = {0, 1}, double threshold = 0.5,
                 std::string name = "binary_io_u");

}  // namespace pl::metrics

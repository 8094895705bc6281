#include "model/losses.h"

#include "base/error.h"
#include "base/number_text.h"

namespace pl::losses {
namespace {

Loss make(const char* name, const std::string& reduction, Attrs options = {},
          bool from_logits = false) {
  Loss loss{.name = name,
            .from_logits = from_logits,
            .reduction = reduction,
            .options = std::move(options)};
  check_loss(loss);
  return loss;
}

// Options that are not Keras's default, so that equal losses print equally.
void add(Attrs& attrs, const char* name, double value, double otherwise) {
  if (value != otherwise) attrs.set(name, value);
}
void add_axis(Attrs& attrs, int64_t axis) {
  if (axis != -1) attrs.set("axis", axis);
}
void add_smoothing(Attrs& attrs, const char* loss, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    throw UserError("[" + std::string(loss) + "] label_smoothing: expected a number from 0 to 1, " +
                    "received " + number_text(smoothing));
  add(attrs, "label_smoothing", smoothing, 0);
}

}  // namespace

Loss CTC(const Options& o) { return make("ctc", o.reduction); }
Loss MeanSquaredError(const Options& o) { return make("mean_squared_error", o.reduction); }
Loss MeanAbsoluteError(const Options& o) { return make("mean_absolute_error", o.reduction); }
Loss MeanAbsolutePercentageError(const Options& o) {
  return make("mean_absolute_percentage_error", o.reduction);
}
Loss MeanSquaredLogarithmicError(const Options& o) {
  return make("mean_squared_logarithmic_error", o.reduction);
}
Loss LogCosh(const Options& o) { return make("log_cosh", o.reduction); }
Loss KLDivergence(const Options& o) { return make("kl_divergence", o.reduction); }
Loss Poisson(const Options& o) { return make("poisson", o.reduction); }
Loss Hinge(const Options& o) { return make("hinge", o.reduction); }
Loss SquaredHinge(const Options& o) { return make("squared_hinge", o.reduction); }
Loss CategoricalHinge(const Options& o) { return make("categorical_hinge", o.reduction); }

Loss CosineSimilarity(const CosineSimilarityOptions& o) {
  Attrs attrs;
  add_axis(attrs, o.axis);
  return make("cosine_similarity", o.reduction, attrs);
}

Loss Huber(const HuberOptions& o) {
  Attrs attrs;
  add(attrs, "delta", o.delta, 1);
  return make("huber", o.reduction, attrs);
}

Loss BinaryCrossentropy(const BinaryCrossentropyOptions& o) {
  Attrs attrs;
  add_smoothing(attrs, "BinaryCrossentropy", o.label_smoothing);
  return make("binary_crossentropy", o.reduction, attrs, o.from_logits);
}

Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& o) {
  Attrs attrs;
  add_smoothing(attrs, "BinaryFocalCrossentropy", o.label_smoothing);
  add(attrs, "alpha", o.alpha, 0.25);
  add(attrs, "gamma", o.gamma, 2);
  if (o.apply_class_balancing) attrs.set("apply_class_balancing", int64_t{1});
  return make("binary_focal_crossentropy", o.reduction, attrs, o.from_logits);
}

Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& o) {
  Attrs attrs;
  add_smoothing(attrs, "CategoricalCrossentropy", o.label_smoothing);
  add_axis(attrs, o.axis);
  return make("categorical_crossentropy", o.reduction, attrs, o.from_logits);
}

Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& o) {
  Attrs attrs;
  add_smoothing(attrs, "CategoricalFocalCrossentropy", o.label_smoothing);
  add(attrs, "alpha", o.alpha, 0.25);
  add(attrs, "gamma", o.gamma, 2);
  add_axis(attrs, o.axis);
  return make("categorical_focal_crossentropy", o.reduction, attrs, o.from_logits);
}

Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& o) {
  Attrs attrs;
  if (o.ignore_class) attrs.set("ignore_class", *o.ignore_class);
  add_axis(attrs, o.axis);
  return make("sparse_categorical_crossentropy", o.reduction, attrs, o.from_logits);
}

Loss CategoricalGeneralizedCrossEntropy(const CategoricalGeneralizedCrossEntropyOptions& o) {
  if (!(o.q > 0 && o.q < 1))
    throw UserError(
        "[CategoricalGeneralizedCrossEntropy] q: expected a number between 0 and 1, received " +
        number_text(o.q));
  Attrs attrs;
  add(attrs, "q", o.q, 0.5);
  return make("categorical_generalized_cross_entropy", o.reduction, attrs);
}

Loss Dice(const DiceOptions& o) {
  Attrs attrs;
  if (!o.axis.empty()) attrs.set("axis", o.axis);
  return make("dice", o.reduction, attrs);
}

Loss Tversky(const TverskyOptions& o) {
  Attrs attrs;
  add(attrs, "alpha", o.alpha, 0.5);
  add(attrs, "beta", o.beta, 0.5);
  if (!o.axis.empty()) attrs.set("axis", o.axis);
  return make("tversky", o.reduction, attrs);
}

Loss Circle(const CircleOptions& o) {
  Attrs attrs;
  add(attrs, "gamma", o.gamma, 80);
  add(attrs, "margin", o.margin, 0.4);
  if (!o.remove_diagonal) attrs.set("remove_diagonal", int64_t{0});
  return make("circle", o.reduction, attrs);
}

}  // namespace pl::losses

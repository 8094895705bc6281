"""Writes keras_heads.json: losses with gradients, metrics over three batches, and a fit with two
inputs and outputs, as Keras computes them.

    python keras_heads.py        (Keras 3 with JAX on a CPU)

All numbers come from counter_hash.py, rounded to float32, so that src/model/heads_answers_test.cc makes
the same ones and only answers are stored. Everything is computed in float64.
"""

import json
import os
import pathlib

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1")

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

from counter_hash import hashes, real  # noqa: E402
from keras.src import backend  # noqa: E402

keras.config.set_floatx("float64")
# Keras takes these in float32 whatever the dtype is; here they are what its formulas say.
for name in ("mean", "std", "var"):
    setattr(backend.numpy, name, lambda x, axis=None, keepdims=False, f=getattr(jax.numpy, name): f(
        x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims))
Y, P, W = 1, 2, 3  # salts; a batch adds 10 times its number


def make(kind, salt, shape, classes):
    """The tensor of that kind: see `make` in the test."""
    count = int(np.prod(shape))
    if kind == "real":
        return real(salt, shape, 1)
    if kind == "unit":
        return real(salt, shape, -1, 0.5).astype(np.float32).astype(np.float64)
    if kind == "positive":
        return real(salt, shape, 0, 1.25).astype(np.float32).astype(np.float64)
    if kind == "binary":
        return (hashes(salt, count) % 2).reshape(shape).astype(np.float64)
    if kind == "sign":
        return (hashes(salt, count) % 2).reshape(shape) * 2.0 - 1
    if kind == "spelling":  # of up to 3 of the classes but 0, then zeros
        labels = (hashes(salt, 3 * shape[0]) % (classes - 1) + 1).reshape(shape[0], 3)
        return (labels * (np.arange(3) <= (hashes(salt + 1, shape[0]) % 3)[:, None])).astype(np.int32)
    labels = (hashes(salt, count // shape[-1]) % classes).reshape(shape[:-1]).astype(np.int32)
    if kind == "labels":
        return labels
    assert kind == "one_hot"
    return np.eye(classes)[labels]


def weights(salt, rows):
    return real(salt, (rows,), -1, 0.75).astype(np.float32).astype(np.float64)


# name, Keras's class, options, kinds of y and p, shape of p
LOSSES = [
    ("mean_squared_error", "MeanSquaredError", {}, "real", "real", (5, 3)),
    ("mean_squared_error", "MeanSquaredError", {}, "real", "real", (3, 4, 5)),
    ("mean_absolute_error", "MeanAbsoluteError", {}, "real", "real", (5, 3)),
    ("mean_absolute_percentage_error", "MeanAbsolutePercentageError", {}, "positive", "real", (5, 3)),
    ("mean_squared_logarithmic_error", "MeanSquaredLogarithmicError", {}, "positive", "positive", (5, 3)),
    ("cosine_similarity", "CosineSimilarity", {}, "real", "real", (5, 3)),
    ("cosine_similarity", "CosineSimilarity", {"axis": 1}, "real", "real", (3, 4, 2)),
    ("huber", "Huber", {}, "real", "real", (5, 3)),
    ("huber", "Huber", {"delta": 0.625}, "real", "real", (7, 1)),
    ("log_cosh", "LogCosh", {}, "real", "real", (5, 3)),
    ("hinge", "Hinge", {}, "binary", "real", (5, 3)),
    ("hinge", "Hinge", {}, "sign", "real", (5, 3)),
    ("squared_hinge", "SquaredHinge", {}, "binary", "real", (5, 3)),
    ("categorical_hinge", "CategoricalHinge", {}, "one_hot", "real", (5, 4)),
    ("kl_divergence", "KLDivergence", {}, "unit", "unit", (5, 3)),
    ("poisson", "Poisson", {}, "positive", "positive", (5, 3)),
    ("binary_crossentropy", "BinaryCrossentropy", {}, "binary", "unit", (5, 3)),
    ("binary_crossentropy", "BinaryCrossentropy", {"from_logits": True}, "binary", "real", (7, 1)),
    ("binary_crossentropy", "BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.125}, "binary",
     "real", (5, 3)),
    ("binary_focal_crossentropy", "BinaryFocalCrossentropy", {}, "binary", "unit", (5, 3)),
    ("binary_focal_crossentropy", "BinaryFocalCrossentropy",
     {"apply_class_balancing": True, "gamma": 1.5, "alpha": 0.375, "from_logits": True, "label_smoothing": 0.25},
     "binary", "real", (5, 3)),
    ("categorical_crossentropy", "CategoricalCrossentropy", {}, "one_hot", "unit", (5, 4)),
    ("categorical_crossentropy", "CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.125},
     "one_hot", "real", (5, 4)),
    ("categorical_crossentropy", "CategoricalCrossentropy", {"axis": 1}, "unit", "unit", (3, 4, 2)),
    ("categorical_focal_crossentropy", "CategoricalFocalCrossentropy", {}, "one_hot", "unit", (5, 4)),
    ("categorical_focal_crossentropy", "CategoricalFocalCrossentropy",
     {"gamma": 3.0, "alpha": 0.5, "from_logits": True}, "one_hot", "real", (5, 4)),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {}, "labels", "unit", (5, 4)),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {"from_logits": True}, "labels", "real",
     (3, 6, 4)),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": 2},
     "labels", "real", (9, 4)),
    ("categorical_generalized_cross_entropy", "CategoricalGeneralizedCrossEntropy", {"q": 0.75}, "labels", "unit",
     (5, 4)),
    ("dice", "Dice", {}, "binary", "unit", (5, 3)),
    ("dice", "Dice", {"axis": [1, 2]}, "binary", "unit", (4, 3, 2)),
    ("tversky", "Tversky", {"alpha": 0.75, "beta": 0.25}, "binary", "unit", (5, 3)),
    ("tversky", "Tversky", {"axis": [1]}, "binary", "unit", (5, 3)),
    ("circle", "Circle", {"gamma": 2.0}, "labels", "unit", (6, 3)),
    ("ctc", "CTC", {}, "spelling", "real", (5, 7, 4)),
]
REDUCTIONS = ["sum_over_batch_size", "sum", "mean_with_sample_weight"]


def loss_case(name, kind, options, y_kind, p_kind, shape):
    classes = 2 if name == "circle" else shape[-1]
    y, p = make(y_kind, Y, shape, classes), make(p_kind, P, shape, classes)
    # One weight a sample; for values (B, T) in Keras they are (B, 1).
    w = weights(W, shape[0])
    keras_options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}

    def compute(reduction, weighted):
        loss = getattr(keras.losses, kind)(reduction=reduction, **keras_options)

        def value(p):
            rank = np.ndim(getattr(keras.losses, kind)(reduction="none", **keras_options)(y, p))
            column = w.reshape((-1,) + (1,) * (rank - 1)) if rank > 0 else w
            return loss(y, p, sample_weight=column if weighted else None)

        return value

    answer = {"name": name, "options": options, "y": y_kind, "p": p_kind, "shape": shape, "classes": classes}
    answer["none"] = np.asarray(compute("none", False)(p)).reshape(-1).tolist()
    for reduction in REDUCTIONS:
        answer[reduction] = [float(compute(reduction, weighted)(p)) for weighted in (False, True)]
    for weighted in (False, True):
        gradient = jax.grad(lambda p: compute("sum_over_batch_size", weighted)(p))(p)
        answer["weighted_gradient" if weighted else "gradient"] = np.asarray(gradient).reshape(-1).tolist()
    return answer


# key in the test, Keras's class, options, kinds, shape of one sample of p, classes
METRICS = [
    ("accuracy", "BinaryAccuracy", {}, "binary", "unit", (1,)),
    ("accuracy", "SparseCategoricalAccuracy", {}, "labels", "unit", (4,)),
    ("accuracy", "CategoricalAccuracy", {}, "one_hot", "unit", (4,)),
    ("binary_accuracy", "BinaryAccuracy", {}, "binary", "unit", (3,)),
    ("top_3", "TopKCategoricalAccuracy", {"k": 3}, "one_hot", "unit", (6,)),
    ("sparse_top_2", "SparseTopKCategoricalAccuracy", {"k": 2}, "labels", "unit", (6,)),
    ("mse", "MeanSquaredError", {}, "real", "real", (3,)),
    ("root_mean_squared_error", "RootMeanSquaredError", {}, "real", "real", (3,)),
    ("mae", "MeanAbsoluteError", {}, "real", "real", (3,)),
    ("mape", "MeanAbsolutePercentageError", {}, "positive", "real", (3,)),
    ("msle", "MeanSquaredLogarithmicError", {}, "positive", "positive", (3,)),
    ("cosine_similarity", "CosineSimilarity", {}, "real", "real", (3,)),
    ("log_cosh_error", "LogCoshError", {}, "real", "real", (3,)),
    ("r2_score", "R2Score", {}, "real", "real", (3,)),
    ("r2_weighted", "R2Score", {"class_aggregation": "variance_weighted_average", "num_regressors": 2}, "real",
     "real", (3,)),
    ("pearson_correlation", "PearsonCorrelation", {}, "real", "real", (5,)),
    ("concordance_correlation", "ConcordanceCorrelation", {}, "real", "real", (5,)),
    ("categorical_hinge", "CategoricalHinge", {}, "one_hot", "real", (4,)),
    ("hinge", "Hinge", {}, "sign", "real", (4,)),
    ("kl_divergence", "KLDivergence", {}, "unit", "unit", (3,)),
    ("poisson", "Poisson", {}, "positive", "positive", (3,)),
    ("binary_crossentropy", "BinaryCrossentropy", {}, "binary", "unit", (3,)),
    ("categorical_crossentropy", "CategoricalCrossentropy", {}, "one_hot", "unit", (4,)),
    ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {}, "labels", "unit", (4,)),
    ("true_positives", "TruePositives", {}, "binary", "unit", (3,)),
    ("false_positives", "FalsePositives", {}, "binary", "unit", (3,)),
    ("true_negatives", "TrueNegatives", {}, "binary", "unit", (3,)),
    ("false_negatives", "FalseNegatives", {}, "binary", "unit", (3,)),
    ("precision", "Precision", {}, "binary", "unit", (1,)),
    ("precision_class_1", "Precision", {"class_id": 1, "thresholds": 0.375}, "binary", "unit", (3,)),
    ("recall", "Recall", {}, "binary", "unit", (3,)),
    ("recall_class_2", "Recall", {"class_id": 2}, "binary", "unit", (3,)),
    ("precision_top_2", "Precision", {"top_k": 2}, "binary", "unit", (5,)),
    ("recall_top_3", "Recall", {"top_k": 3, "thresholds": 0.5}, "binary", "unit", (5,)),
    ("recall_top_2_class_1", "Recall", {"top_k": 2, "class_id": 1}, "binary", "unit", (5,)),
    ("equal", "Accuracy", {}, "binary", "binary", (3,)),
    ("squared_hinge", "SquaredHinge", {}, "sign", "real", (4,)),
    ("auc", "AUC", {}, "binary", "unit", (1,)),
    ("auc_pr", "AUC", {"curve": "PR"}, "binary", "unit", (2,)),
    ("auc_pr_minoring", "AUC", {"curve": "PR", "summation_method": "minoring"}, "binary", "unit", (2,)),
    ("auc_prgain", "AUC", {"curve": "PRGAIN", "summation_method": "majoring", "num_thresholds": 23}, "binary",
     "unit", (2,)),
    ("auc_multi_label", "AUC", {"multi_label": True, "num_thresholds": 11}, "binary", "unit", (3,)),
    ("auc_logits", "AUC", {"from_logits": True, "num_thresholds": 50}, "binary", "real", (2,)),
    ("sensitivity_at_specificity", "SensitivityAtSpecificity", {"specificity": 0.5}, "binary", "unit", (2,)),
    ("specificity_at_sensitivity", "SpecificityAtSensitivity", {"sensitivity": 0.5, "num_thresholds": 1}, "binary",
     "unit", (2,)),
    ("precision_at_recall", "PrecisionAtRecall", {"recall": 0.25}, "binary", "unit", (2,)),
    ("recall_at_precision", "RecallAtPrecision", {"precision": 0.5}, "binary", "unit", (2,)),
    ("f1_macro", "F1Score", {"average": "macro"}, "one_hot", "unit", (4,)),
    ("f1_micro", "F1Score", {"average": "micro", "threshold": 0.5}, "binary", "unit", (4,)),
    ("fbeta_weighted", "FBetaScore", {"average": "weighted", "beta": 2.0}, "one_hot", "unit", (4,)),
    ("binary_io_u", "BinaryIoU", {}, "binary", "unit", (3,)),
    ("io_u", "IoU", {"num_classes": 4, "target_class_ids": [0, 2]}, "labels", "labels", (4,)),
    ("mean_io_u", "MeanIoU", {"num_classes": 4, "ignore_class": 1}, "labels", "labels", (4,)),
    ("one_hot_mean_io_u", "OneHotMeanIoU", {"num_classes": 4}, "one_hot", "unit", (4,)),
    ("one_hot_io_u", "OneHotIoU", {"num_classes": 4, "target_class_ids": [0, 2]}, "one_hot", "unit", (4,)),
]
BATCHES = [5, 5, 3]


def metric_case(key, kind, options, y_kind, p_kind, shape):
    answer = {"key": key, "y": y_kind, "p": p_kind, "shape": shape}
    for weighted in (False, True):
        # Keras's IoU counts in integers: other weights would be cut off.
        if weighted and "IoU" in kind:
            continue
        metric = getattr(keras.metrics, kind)(**options)
        for b, rows in enumerate(BATCHES):
            y = make(y_kind, Y + 10 * b, (rows, *shape), shape[-1])
            p = make(p_kind, P + 10 * b, (rows, *shape), shape[-1])
            w = weights(W + 10 * b, rows) if weighted else None
            metric.update_state(y, p, sample_weight=w)
        answer["weighted" if weighted else "plain"] = float(metric.result())
    return answer


def set_weights(model):
    """By path, sorted: weight i has salt 100 + i."""
    for i, v in enumerate(sorted(model.weights, key=lambda v: v.path)):
        v.assign(real(100 + i, v.shape, -1))


def two_ends(weighted):
    """Two inputs, a shared trunk, two outputs; a last batch of 2 of 10 samples."""
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    trunk = keras.layers.Dense(4, activation="tanh", name="trunk")
    h = keras.layers.Concatenate(name="both")([trunk(a), keras.layers.Dense(3, name="side")(b)])
    price = keras.layers.Dense(1, name="price")(h)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(h)
    model = keras.Model([a, b], [price, kind])
    set_weights(model)
    model.compile(
        keras.optimizers.SGD(0.1),
        loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
        loss_weights={"price": 0.5, "kind": 2.0},
        metrics={"price": ["mae"], "kind": ["accuracy"]},
        weighted_metrics={"kind": ["accuracy"]},
    )
    xa, xb = real(1, (10, 3), 0), real(2, (10, 2), 0)
    y = [real(3, (10, 1), 0), (hashes(4, 10) % 3).astype(np.int32)]
    w = [weights(5, 10), weights(6, 10)] if weighted else None
    history = model.fit([xa, xb], y, sample_weight=w, batch_size=4, epochs=3, shuffle=False, verbose=0)
    return {"paths": sorted(v.path for v in model.weights),
            "history": {k: [float(x) for x in v] for k, v in history.history.items()}}


def class_weight():
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(3, activation="softmax", name="kind")(x))
    set_weights(model)
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy", metrics=["accuracy"],
                  weighted_metrics=["accuracy"])
    history = model.fit(real(1, (10, 3), 0), (hashes(4, 10) % 3).astype(np.int32), batch_size=4, epochs=3,
                        shuffle=False, verbose=0, class_weight={0: 0.5, 2: 3.0},
                        validation_data=(real(7, (5, 3), 0), (hashes(8, 5) % 3).astype(np.int32)))
    return {"paths": sorted(v.path for v in model.weights),
            "history": {k: [float(x) for x in v] for k, v in history.history.items()}}


def main():
    answer = {
        "made_by": "tests/golden/keras_heads.py",
        "keras": keras.__version__,
        "losses": [loss_case(*case) for case in LOSSES],
        "metrics": [metric_case(*case) for case in METRICS],
        "two_ends": two_ends(False),
        "two_ends_weighted": two_ends(True),
        "class_weight": class_weight(),
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(answer, indent=None, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


if __name__ == "__main__":
    main()

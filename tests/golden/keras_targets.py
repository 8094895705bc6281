"""Writes keras_targets.json: what a loss, a metric and a train_step of one's own see of targets, and what follows.

    python keras_targets.py > keras_targets.json

Each case is one layer, Dense(units), with a last dimension of 1 dropped or not, and targets with or without one. `seen` has
the shapes (without the batch) and ranks that Keras hands out; `figures` what evaluate() shows with a loss of Keras's, its
accuracy, a metric of one's own and the weighted ones. Run with Keras 3.15.1 and TensorFlow 2.21.
"""

import json

import keras
import numpy as np
from keras import layers, ops

BATCH = 6


def wave(shape, phase):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return np.sin(12.9898 * (i + 1) + phase).astype(np.float32).reshape(shape)


def targets(case):
    shape = (BATCH, *case["y"])
    i = np.arange(int(np.prod(shape)))
    return ((i * 7 + 3 + i // 5) % max(case["units"], 2)).astype(case["dtype"]).reshape(shape)


def weights(case):
    shape = (BATCH, *case["weights"])
    return (1 + np.arange(int(np.prod(shape))) % 3).astype(np.float32).reshape(shape)


def share(y_true, y_pred):
    """A metric in whose figure it shows which targets it got: (B,) times (B, 1) is (B, B)."""
    y = ops.cast(y_true, y_pred.dtype)
    return ops.mean(y * y_pred, axis=-1) if len(y.shape) == len(y_pred.shape) else ops.mean(y, axis=-1)


def build(case, model=keras.Model):
    x = keras.Input(case["x"])
    dense = layers.Dense(case["units"])
    out = dense(x)
    if case["flat"]:
        out = layers.Reshape(case["x"][:-1])(out)
    result = model(x, out)
    dense.kernel.assign(wave(dense.kernel.shape, 0))
    return result


def seen_by(case):
    seen = {}

    def loss(y_true, y_pred):
        seen["loss_true"], seen["loss_pred"] = list(y_true.shape[1:]), list(y_pred.shape[1:])
        return ops.mean(y_pred, axis=-1)

    def metric(y_true, y_pred):
        seen["metric_true"], seen["metric_pred"] = list(y_true.shape[1:]), list(y_pred.shape[1:])
        return ops.mean(y_pred, axis=-1)

    class Own(keras.Model):
        def train_step(self, data):
            x, y, w = keras.utils.unpack_x_y_sample_weight(data)
            seen["step"] = list(y.shape[1:])
            if w is not None:
                seen["step_weight"] = list(w.shape[1:])
            return super().train_step(data)

    model = build(case, Own)
    model.compile("sgd", loss, metrics=[metric])
    w = weights(case) if case["weights"] is not None else None
    model.fit(wave((BATCH, *case["x"]), 1), targets(case), sample_weight=w, batch_size=BATCH, verbose=0)
    return seen


def figures(case):
    model = build(case)
    logits = {} if case["loss"] == "mean_squared_error" else {"from_logits": True}
    loss = getattr(keras.losses, "".join(part.capitalize() for part in case["loss"].split("_")))(**logits)
    w = weights(case) if case["weights"] is not None else None
    # Keras takes the batch of predictions (B,) for classes.
    model.compile("sgd", loss, metrics=[share] if case["flat"] else ["accuracy", share],
                  weighted_metrics=["accuracy"] if w is not None else None)
    x, y = wave((BATCH, *case["x"]), 1), targets(case)
    shown = model.evaluate(x, y, sample_weight=w, batch_size=BATCH, verbose=0, return_dict=True)
    return {k: float(f"{v:.9g}") for k, v in shown.items()}


def main():
    sparse, binary, mse = "sparse_categorical_crossentropy", "binary_crossentropy", "mean_squared_error"
    pixels = (4, 5, 2)
    list_of = [  # x, units, flat, y, dtype, weights, loss
        ((3,), 1, False, (), "float32", None, mse),
        ((3,), 1, False, (1,), "float32", None, mse),
        ((3,), 1, True, (1,), "float32", None, mse),
        ((3,), 4, False, (4,), "float32", (), mse),
        ((3,), 4, False, (), "int32", None, sparse),
        ((3,), 4, False, (1,), "int64", (), sparse),
        ((3,), 1, False, (), "int32", (), binary),
        ((3,), 1, False, (1,), "uint8", (1,), binary),
        (pixels, 3, False, (4, 5, 1), "uint8", None, sparse),
        (pixels, 3, False, (4, 5), "uint8", None, sparse),
        (pixels, 3, False, (4, 5, 1), "int32", (4, 5), sparse),
        (pixels, 3, False, (4, 5, 1), "int32", (4, 5, 1), sparse),
        (pixels, 1, False, (4, 5, 1), "float32", (4, 5), binary),
        (pixels, 1, False, (4, 5), "float32", None, binary),
        (pixels, 1, True, (4, 5, 1), "float32", None, mse),
    ]
    cases = []
    for row in list_of:
        case = dict(zip(["x", "units", "flat", "y", "dtype", "weights", "loss"], row))
        cases.append({**case, "seen": seen_by(case), "figures": figures(case)})
    print("[" + ",\n".join(json.dumps(case) for case in cases) + "]")


main()

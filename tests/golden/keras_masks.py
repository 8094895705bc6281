"""Writes keras_masks.json: fits in which the predictions have a mask, as Keras computes them.

    python keras_masks.py        (Keras 3 with TensorFlow on a CPU)

Numbers come from counter_hash.py; the test is KerasHeads.MasksOfPredictions. With JAX, Keras loses the mask between
loss and metrics while it trains; with TensorFlow both have it. Everything is computed in float64.
"""

import json
import os
import pathlib

os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="")

import keras  # noqa: E402
import numpy as np  # noqa: E402

from counter_hash import hashes, real  # noqa: E402

keras.config.set_floatx("float64")


def masked(weighted, loss):
    """Positions of zeros count in nothing but the number of samples."""
    x = keras.Input((4, 3), name="x")
    m = keras.layers.Masking(name="mask")(x)
    model = keras.Model(x, keras.layers.Dense(3, activation="softmax", name="kind")(m))
    for i, v in enumerate(sorted(model.weights, key=lambda v: v.path)):
        v.assign(real(100 + i, v.shape, -1))
    model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy", "sparse_categorical_crossentropy"],
                  weighted_metrics=["accuracy"])
    data = real(1, (10, 4, 3), 0) * (hashes(2, 40) % 2).reshape(10, 4, 1)
    data[:, 0] = real(3, (10, 3), 0)
    y = (hashes(4, 40) % 3).reshape(10, 4).astype(np.int32)
    w = real(5, (10, 4), -1, 0.75).astype(np.float32).astype(np.float64) if weighted else None
    history = model.fit(data, y, sample_weight=w, batch_size=4, epochs=3, shuffle=False, verbose=0)
    return {"paths": sorted(v.path for v in model.weights),
            "history": {k: [float(x) for x in v] for k, v in history.history.items()}}


def main():
    entropy = keras.losses.SparseCategoricalCrossentropy
    answer = {
        "made_by": "tests/golden/keras_masks.py",
        "keras": keras.__version__,
        "masked": masked(False, entropy()),
        "masked_weighted": masked(True, entropy()),
        "masked_by_weights": masked(True, entropy(reduction="mean_with_sample_weight")),
        "masked_ignoring": masked(False, entropy(ignore_class=1)),
    }
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Writes keras_losses.json: ten training losses of mlp and mnist-cnn as Keras computes them.

    KERAS_BACKEND=jax python keras_losses.py

Initial weights and the one batch come from a counter hash scaled by powers of two, exact in float32,
so that the test (tests/end_to_end/keras_test.cc) computes the same bits and nothing large is stored.
Run with Keras 3.15.1 and JAX on a CPU.
"""

import json
import os
import pathlib
import subprocess
import sys

BATCH, STEPS, CLASSES = 64, 10, 10
INPUT_SALT, LABEL_SALT = 1001, 1002

# name, shape and e: weights are uniform in [-2^e, 2^e), near Keras's own initial widths.
WEIGHTS = {
    "mlp": [
        ("dense/kernel", (784, 512), -4),
        ("dense/bias", (512,), -6),
        ("dense_1/kernel", (512, 512), -4),
        ("dense_1/bias", (512,), -6),
        ("dense_2/kernel", (512, 10), -3),
        ("dense_2/bias", (10,), -6),
    ],
    "mnist-cnn": [
        ("conv2d/kernel", (3, 3, 1, 32), -3),
        ("conv2d/bias", (32,), -6),
        ("conv2d_1/kernel", (3, 3, 32, 64), -4),
        ("conv2d_1/bias", (64,), -6),
        ("dense/kernel", (1600, 64), -4),
        ("dense/bias", (64,), -6),
        ("dense_1/kernel", (64, 10), -2),
        ("dense_1/bias", (10,), -6),
    ],
}
INPUTS = {"mlp": (784,), "mnist-cnn": (28, 28, 1)}
CASES = [("mlp", "adam", 0.001), ("mlp", "sgd", 0.01), ("mnist-cnn", "adam", 0.001)]


def weight(salt, shape, exponent, dtype):
    from counter_hash import real

    return real(salt, shape, exponent).astype(dtype)


def batch(model, dtype):
    import numpy as np
    from counter_hash import hashes

    count = BATCH * int(np.prod(INPUTS[model]))
    x = (hashes(INPUT_SALT, count) >> np.uint32(8)).astype(np.float64) * 2.0**-24
    y = (hashes(LABEL_SALT, BATCH) % np.uint32(CLASSES)).astype(np.int32)
    return x.reshape((BATCH, *INPUTS[model])).astype(dtype), y


def build(model, softmax):
    from keras import Sequential, layers

    head = layers.Dense(CLASSES, activation="softmax" if softmax else None)
    if model == "mlp":
        body = [layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu")]
    else:
        body = [
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
        ]
    return Sequential([layers.Input(INPUTS[model]), *body, head])


def losses(model, optimizer, rate, dtype, softmax):
    import keras

    keras.utils.clear_session()
    keras.config.set_floatx(dtype)
    network = build(model, softmax)
    network.set_weights(
        [weight(salt, shape, e, dtype) for salt, (_, shape, e) in enumerate(WEIGHTS[model])]
    )
    kinds = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    network.compile(
        kinds[optimizer](learning_rate=rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=not softmax),
    )
    x, y = batch(model, dtype)
    out = []
    for _ in range(STEPS):
        network.reset_metrics()  # or Keras would answer the mean over all calls so far
        out.append(float(network.train_on_batch(x, y)))
    return out


def worker(dtype):
    import keras
    import jax

    answers = {"keras": keras.__version__, "jax": jax.__version__, "losses": []}
    for model, optimizer, rate in CASES:
        answers["losses"].append(
            {
                "probabilities": losses(model, optimizer, rate, dtype, True),
                "logits": losses(model, optimizer, rate, dtype, False),
            }
        )
    print(json.dumps(answers))


def main():
    results = {}
    for dtype in ("float32", "float64"):
        environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
        environment["JAX_ENABLE_X64"] = "1" if dtype == "float64" else "0"
        done = subprocess.run(
            [sys.executable, __file__, dtype], env=environment, check=True, stdout=subprocess.PIPE
        )
        results[dtype] = json.loads(done.stdout.splitlines()[-1])
    cases = []
    for i, (model, optimizer, rate) in enumerate(CASES):
        # What the loss is computed from must not matter, or these would be poor answers.
        for dtype, tolerance in (("float32", 5e-6), ("float64", 1e-12)):
            pair = results[dtype]["losses"][i]
            for a, b in zip(pair["probabilities"], pair["logits"]):
                assert abs(a - b) <= tolerance * abs(b), (model, optimizer, dtype, a, b)
        cases.append(
            {
                "model": model,
                "optimizer": optimizer,
                "learning_rate": rate,
                "weights": [
                    {"name": n, "shape": s, "exponent": e} for n, s, e in WEIGHTS[model]
                ],
                "input": INPUTS[model],
                "float32": results["float32"]["losses"][i]["probabilities"],
                "float64": results["float64"]["losses"][i]["probabilities"],
            }
        )
    answer = {
        "made_by": "tests/golden/keras_losses.py",
        "keras": results["float32"]["keras"],
        "jax": results["float32"]["jax"],
        "batch": BATCH,
        "input_salt": INPUT_SALT,
        "label_salt": LABEL_SALT,
        "classes": CLASSES,
        "cases": cases,
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    worker(sys.argv[1]) if len(sys.argv) > 1 else main()

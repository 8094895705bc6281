"""Writes keras_callbacks.json: what Keras 3's callbacks decide on scripted logs.

    python tests/golden/keras_callbacks.py > tests/golden/keras_callbacks.json

Each case has the callback's options, the monitored values epoch by epoch, and the decisions:
learning rates after each epoch, epochs that were saved (with their file names), the epoch at which
training stopped, and the epoch whose weights were restored.
"""

import json
import os
import random
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax" if os.environ.get("USE_JAX") else "tensorflow")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402

EPOCHS = 14


class Model:
    """As much of a model as the callbacks touch."""

    def __init__(self):
        self.optimizer = keras.optimizers.SGD(learning_rate=0.1)
        self.stop_training = False
        self.metrics = []
        self.saved, self.restored, self.epoch = [], None, 0

    def get_weights(self):
        return self.epoch

    def set_weights(self, epoch):
        self.restored = epoch

    def save(self, path, overwrite=True):
        self.saved.append([self.epoch, os.path.basename(path)[: -len(".keras")]])

    save_weights = save


def run(callback, values, monitor):
    model = Model()
    callback.set_model(model)
    callback.set_params({"epochs": EPOCHS})
    callback.on_train_begin({})
    rates = []
    for epoch, value in enumerate(values):
        model.epoch = epoch
        callback.on_epoch_begin(epoch, {})
        callback.on_epoch_end(epoch, {"loss": 1.0, monitor: value})
        rates.append(float(f"{float(model.optimizer.learning_rate):.7g}"))
        if model.stop_training:
            break
    callback.on_train_end({})
    return {"rates": rates, "saved": model.saved, "epochs": len(rates), "restored": model.restored}


def values_of(rng):
    value, list_ = 1.0, []
    for _ in range(EPOCHS):
        value += rng.choice([-0.25, -0.0625, -0.03125, 0.0, 0.03125, 0.125])
        list_.append(value)
    return list_


def main():
    rng = random.Random(7)
    cases = []
    for i in range(24):
        mode = rng.choice(["min", "max"])
        options = {"monitor": "val_figure", "mode": mode, "min_delta": rng.choice([0, 0.05, 0.1]),
                   "patience": rng.choice([0, 1, 2, 4]), "start_from_epoch": rng.choice([0, 0, 3]),
                   "restore_best_weights": rng.random() < 0.5}
        if rng.random() < 0.3:
            options["baseline"] = rng.choice([0.5, 0.9, 1.2])
        values = values_of(rng)
        cases.append({"callback": "EarlyStopping", "options": options, "values": values,
                      **run(keras.callbacks.EarlyStopping(**options), values, "val_figure")})
    for i in range(20):
        options = {"monitor": "val_figure", "mode": rng.choice(["min", "max"]),
                   "factor": rng.choice([0.1, 0.5]), "patience": rng.choice([1, 2, 3]),
                   "min_delta": rng.choice([1e-4, 0.05]), "cooldown": rng.choice([0, 1, 2]),
                   "min_lr": rng.choice([0.0, 0.02])}
        values = values_of(rng)
        cases.append({"callback": "ReduceLROnPlateau", "options": options, "values": values,
                      **run(keras.callbacks.ReduceLROnPlateau(**options), values, "val_figure")})
    for i in range(12):
        options = {"monitor": "val_figure", "mode": rng.choice(["min", "max"]),
                   "save_best_only": rng.random() < 0.7}
        if rng.random() < 0.4:
            options["initial_value_threshold"] = rng.choice([0.5, 0.9, 1.2])
        values = values_of(rng)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "{epoch:02d}-{val_figure:.3f}.keras")
            cases.append({"callback": "ModelCheckpoint", "options": options, "values": values,
                          **run(keras.callbacks.ModelCheckpoint(path, **options), values,
                                "val_figure")})
    cases.append({"callback": "LearningRateScheduler", "options": {}, "values": [1.0] * EPOCHS,
                  **run(keras.callbacks.LearningRateScheduler(
                      lambda epoch, rate: rate if epoch < 4 else rate * 0.5), [1.0] * EPOCHS,
                      "val_figure")})
    print("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "]")


main()

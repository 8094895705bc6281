"""Overflows injected into the third and the fifth of eight steps under mixed_float16: losses, scales and weights.

    python tests/golden/keras_overflow.py > tests/golden/keras_overflow.json       (Keras 3)
"""

import json
import math
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402

ROWS, WIDTH, STEPS = 4, 6, 8


def pattern(count, phase):
    return np.sin(12.9898 * (np.arange(count) + 1) + phase)


keras.config.set_dtype_policy("mixed_float16")
model = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.set_weights([0.5 * pattern(w.size, i).reshape(w.shape) for i, w in enumerate(model.get_weights())])
model.compile(keras.optimizers.Adam(0.05), "mean_squared_error")
x = pattern(STEPS * ROWS * WIDTH, 0.5).reshape(STEPS, ROWS, WIDTH).astype("float32")
y = pattern(STEPS * ROWS, 0.25).reshape(STEPS, ROWS, 1).astype("float32")
y[2, 1] = 1e6  # its gradient is infinite in float16
x[4, 1] = 1e6  # infinite in float16 itself, and so is the loss
losses, scales, iterations = [], [], []
for step in range(STEPS):
    model.reset_metrics()
    loss = float(model.train_on_batch(x[step], y[step]))
    losses.append(loss if math.isfinite(loss) else None)
    scales.append(float(model.optimizer.dynamic_scale.numpy()))
    iterations.append(int(model.optimizer.iterations.numpy()))
weights = [w.astype("float64").ravel().round(9).tolist() for w in model.get_weights()]
print(json.dumps({"losses": losses, "scales": scales, "iterations": iterations, "weights": weights}))

"""Writes keras_layers.json: small networks of transformer and convolution layers as Keras trains them.

    python keras_layers.py        # with KERAS_BACKEND=jax and JAX_ENABLE_X64=1, which it sets itself

Weights come from a counter hash, salted by their place among the sorted paths, and so do the inputs;
tests/end_to_end/keras_layers_test.cc computes the same numbers and builds the same networks. Stored
are ten losses in float64, the accuracy and the predictions after them. Attention scores are asked
for because JAX's fused attention, without them, computes in float32. Run with Keras 3.15.1 and JAX.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import keras
import jax
import numpy as np
from keras import layers

from counter_hash import hashes, real

BATCH, STEPS, RATE = 3, 10, 0.01
INPUT_SALT, LABEL_SALT = 1001, 1002


def tokens_network():
    """Embedding, causal self-attention, Add, LayerNormalization, gelu on sequences, Concatenate."""
    x = layers.Input((5,), dtype="int32")
    e = layers.Embedding(11, 8, name="emb")(x)
    attention = layers.MultiHeadAttention(2, 4, name="mha")
    a, _ = attention(e, e, use_causal_mask=True, return_attention_scores=True)
    n = layers.LayerNormalization(name="ln")(layers.Add(name="add")([e, a]))
    d = layers.Dense(6, activation="gelu", name="dense")(n)
    c = layers.Concatenate(name="cat")([n, d])
    y = layers.Dense(11, activation="softmax", name="head")(c)
    return keras.Model(x, y), 11, (BATCH, 5)


def cross_network():
    """Attention between different sequences, values of another size, no bias, no causal mask."""
    x = layers.Input((4, 6))
    q = layers.Dense(8, activation="tanh", name="q")(x)
    v = layers.Dense(5, name="v")(x)
    k = layers.Dense(7, name="k")(x)
    attention = layers.MultiHeadAttention(3, 4, value_dim=2, use_bias=False, name="mha")
    a, _ = attention(q, v, k, return_attention_scores=True)
    n = layers.LayerNormalization(epsilon=1e-5, name="ln")(a)
    y = layers.Dense(3, activation="softmax", name="head")(layers.Flatten(name="flat")(n))
    return keras.Model(x, y), 3, (BATCH,)


def causal_network():
    """The same with a causal mask where values have another size, concatenated along positions."""
    x = layers.Input((4, 6))
    attention = layers.MultiHeadAttention(2, 3, value_dim=5, name="mha")
    a, _ = attention(x, x, use_causal_mask=True, return_attention_scores=True)
    c = layers.Concatenate(axis=1, name="cat")([x, a])
    y = layers.Dense(4, activation="softmax", name="head")(c)
    return keras.Model(x, y), 4, (BATCH, 8)


def normed_network():
    """BatchNormalization behind a convolution, before a relu, and without gamma and beta in a sum."""
    x = layers.Input((5, 4, 3))
    c = layers.Conv2D(7, 3, padding="same", use_bias=False, name="conv")(x)
    b = layers.BatchNormalization(momentum=0.8, epsilon=1e-2, name="bn")(c)
    r = layers.Activation("relu", name="act")(b)
    d = layers.Conv2D(3, 1, use_bias=False, name="point")(r)
    e = layers.BatchNormalization(center=False, scale=False, name="plain")(d)
    s = layers.Activation("relu", name="sum")(layers.Add(name="add")([e, x]))
    y = layers.Dense(3, activation="softmax", name="head")(layers.Flatten(name="flat")(s))
    return keras.Model(x, y), 3, (BATCH,)


def centre(path):
    return 1.0 if path.endswith(("gamma", "moving_variance")) else 0.0


def answer(build):
    keras.utils.clear_session()
    keras.config.set_floatx("float64")
    model, classes, label_shape = build()
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1) + centre(v.path))
    shape = (BATCH, *model.input_shape[1:])
    if model.inputs[0].dtype == "int32":
        x = (hashes(INPUT_SALT, int(np.prod(shape))) % np.uint32(11)).astype(np.int32).reshape(shape)
    else:
        x = real(INPUT_SALT, shape, 0)
    count = int(np.prod(label_shape))
    y = (hashes(LABEL_SALT, count) % np.uint32(classes)).astype(np.int32).reshape(label_shape)
    model.compile(
        keras.optimizers.Adam(learning_rate=RATE),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    losses = []
    for _ in range(STEPS):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x, y)[0]))
    accuracy = float(model.evaluate(x, y, verbose=0)[1])
    return {
        "name": build.__name__,
        "paths": paths,
        "losses": losses,
        "accuracy": accuracy,
        "predictions": np.asarray(model.predict(x, verbose=0)).ravel()[:64].tolist(),
    }


def main():
    result = {
        "made_by": "tests/golden/keras_layers.py",
        "keras": keras.__version__,
        "jax": jax.__version__,
        "cases": [
            answer(b) for b in (tokens_network, cross_network, causal_network, normed_network)
        ],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Writes keras_rnn.json: recurrent layers and wrappers over steps, as Keras computes them.

    python keras_rnn.py        # with TensorFlow, whose backend it sets itself

Inputs and weights come from a counter hash, weights salted by their place among the sorted paths;
tests/end_to_end/keras_rnn_test.cc computes the same numbers and builds the same networks under the same names.
`layers` holds the output y and the gradients of sum(y * r), r hashed too, by every input and weight, in float64,
thinned out (the form of keras_layers2.json); `cases` holds networks that were trained for ten steps (that of
keras_layers.json). Run with Keras 3.15.1 and TensorFlow 2.21.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf
from counter_hash import hashes, real
from keras import layers

BATCH, STEPS, RATE = 3, 10, 0.01
INPUT_SALT, LABEL_SALT, POSITION_SALT, SEED_SALT = 1001, 1002, 2002, 3003
MOST_VALUES = 16
MASKED = -30  # about half of the steps are zeros, which Masking leaves out


@keras.saving.register_keras_serializable()
def exact_tanh(x):
    """Keras's own gives float32 whatever the dtype is."""
    return tf.math.tanh(x)


@keras.saving.register_keras_serializable()
def exact_sigmoid(x):
    return tf.math.sigmoid(x)


TANH = dict(activation=exact_tanh, recurrent_activation=exact_sigmoid)
ONE_TANH = dict(activation=exact_tanh)


def input_values(index, shape, exponent):
    x = real(INPUT_SALT + index, (BATCH, *shape), 1 if exponent == MASKED else exponent)
    if exponent == MASKED:
        x *= (hashes(POSITION_SALT, BATCH * int(np.prod(shape[:-1]))) % 2).reshape(BATCH, *shape[:-1], 1)
        x[..., 0, :] = real(POSITION_SALT + 1, (BATCH, *shape[:-2], shape[-1]), 1)
    return x


def thinned(x):
    flat = np.asarray(x, np.float64).ravel()
    stride = max(1, flat.size // MOST_VALUES) | 1
    return {"size": flat.size, "stride": stride, "rms": float(np.sqrt(np.mean(flat**2))),
            "values": flat[::stride].tolist()}


def set_weights(model):
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1))
    return paths


def answer(name, shapes, exponent, build):
    inputs = [layers.Input(shape) for shape in shapes]
    model = keras.Model(inputs, build(*inputs))
    paths = set_weights(model)
    x = [tf.constant(input_values(i, shape, exponent)) for i, shape in enumerate(shapes)]
    weights = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        for value in x:
            tape.watch(value)
        y = model(x if len(x) > 1 else x[0], training=False)
        total = tf.reduce_sum(y * real(SEED_SALT, tuple(y.shape), 0))
    assert y.dtype == tf.float64
    slopes = [s.numpy() for s in tape.gradient(total, x + weights)]
    return {"name": name, "paths": paths, "shape": list(y.shape[1:]), "y": thinned(y.numpy()),
            "dx": [thinned(d) for d in slopes[:len(x)]],
            "dw": {v.path: thinned(d) for v, d in zip(model.trainable_variables, slopes[len(x):])}}


def train(build):
    model, classes, label_shape = build()
    paths = set_weights(model)
    shape = (BATCH, *model.input_shape[1:])
    x = (hashes(INPUT_SALT, int(np.prod(shape))) % np.uint32(11)).astype(np.int32).reshape(shape)
    count = int(np.prod(label_shape))
    y = (hashes(LABEL_SALT, count) % np.uint32(classes)).astype(np.int32).reshape(label_shape)
    optimizer, loss_of = keras.optimizers.Adam(learning_rate=RATE), keras.losses.SparseCategoricalCrossentropy()
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        losses.append(float(loss))
        # As whole tensors: TensorFlow's updates of single rows count a token's occurrences apart.
        slopes = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply([tf.convert_to_tensor(s) for s in slopes], model.trainable_variables)
    scores = model(x, training=False)
    counted = keras.metrics.SparseCategoricalAccuracy()
    counted.update_state(y, scores)  # with the mask of the scores
    accuracy = float(counted.result())
    predictions = np.asarray(scores).ravel()[:64].tolist()
    return {"name": build.__name__, "paths": paths, "losses": losses, "accuracy": accuracy,
            "predictions": predictions}


def chain(*parts):
    def build(x):
        for part in parts:
            x = part(x)
        return x
    return build


def with_state(layer):
    return lambda x, *states: layer(x, initial_state=list(states))


def masked(*parts):
    return chain(layers.Masking(0.0), *parts)


def lstm_cases():
    x = [(5, 3)]
    yield "lstm", x, 1, chain(layers.LSTM(4, name="r", **TANH))
    yield "lstm_sequences", x, 1, chain(layers.LSTM(7, return_sequences=True, name="r", **TANH))
    yield "lstm_backwards", x, 1, chain(
        layers.LSTM(4, return_sequences=True, go_backwards=True, name="r", **TANH))
    yield "lstm_backwards_last", x, 1, chain(layers.LSTM(4, go_backwards=True, name="r", **TANH))
    yield "lstm_no_bias", x, 1, chain(layers.LSTM(4, use_bias=False, name="r", **TANH))
    yield "lstm_relu", x, 1, chain(
        layers.LSTM(4, activation="relu", recurrent_activation="hard_sigmoid", name="r"))
    yield "lstm_wide", [(3, 5)], 1, chain(layers.LSTM(19, return_sequences=True, name="r", **TANH))
    yield "lstm_one_step", [(1, 3)], 1, chain(layers.LSTM(4, name="r", **TANH))
    yield "lstm_masked", [(6, 3)], MASKED, masked(layers.LSTM(4, name="r", **TANH))
    yield "lstm_masked_sequences", [(6, 3)], MASKED, masked(
        layers.LSTM(4, return_sequences=True, name="r", **TANH))
    yield "lstm_masked_backwards", [(6, 3)], MASKED, masked(
        layers.LSTM(4, return_sequences=True, go_backwards=True, name="r", **TANH))
    yield "lstm_state", [(5, 3), (4,), (4,)], 1, with_state(
        layers.LSTM(4, return_sequences=True, name="r", **TANH))
    yield "lstm_stack", [(6, 3)], MASKED, masked(
        layers.LSTM(4, return_sequences=True, name="a", **TANH), layers.LSTM(5, name="b", **TANH))


def gru_cases():
    x = [(5, 3)]
    yield "gru", x, 1, chain(layers.GRU(4, name="r", **TANH))
    yield "gru_sequences", x, 1, chain(layers.GRU(19, return_sequences=True, name="r", **TANH))
    yield "gru_backwards", x, 1, chain(
        layers.GRU(4, return_sequences=True, go_backwards=True, name="r", **TANH))
    yield "gru_no_bias", x, 1, chain(layers.GRU(4, use_bias=False, name="r", **TANH))
    yield "gru_before", x, 1, chain(layers.GRU(4, reset_after=False, name="r", **TANH))
    yield "gru_before_backwards", x, 1, chain(
        layers.GRU(4, reset_after=False, return_sequences=True, go_backwards=True, name="r", **TANH))
    yield "gru_before_masked", [(6, 3)], MASKED, masked(
        layers.GRU(4, reset_after=False, return_sequences=True, name="r", **TANH))
    yield "gru_relu", x, 1, chain(
        layers.GRU(4, activation="relu", recurrent_activation="hard_sigmoid", name="r"))
    yield "gru_masked", [(6, 3)], MASKED, masked(layers.GRU(4, return_sequences=True, name="r", **TANH))
    yield "gru_state", [(5, 3), (4,)], 1, with_state(layers.GRU(4, name="r", **TANH))
    yield "simple", x, 1, chain(layers.SimpleRNN(4, name="r", **ONE_TANH))
    yield "simple_relu", x, 1, chain(
        layers.SimpleRNN(4, activation="relu", return_sequences=True, use_bias=False, name="r"))
    yield "simple_masked", [(6, 3)], MASKED, masked(
        layers.SimpleRNN(4, return_sequences=True, go_backwards=True, name="r", **ONE_TANH))
    yield "simple_state", [(5, 3), (4,)], 1, with_state(layers.SimpleRNN(4, name="r", **ONE_TANH))


def wrapper_cases():
    x = [(5, 3)]
    for mode in ("concat", "sum", "mul", "ave"):
        yield "bidirectional_" + mode, x, 1, chain(layers.Bidirectional(
            layers.LSTM(4, return_sequences=True, name="r", **TANH), merge_mode=mode, name="b"))
    yield "bidirectional_last", x, 1, chain(layers.Bidirectional(layers.GRU(4, name="r", **TANH), name="b"))
    yield "bidirectional_masked", [(6, 3)], MASKED, masked(layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, name="r", **TANH), name="b"))
    yield "bidirectional_masked_last", [(6, 3)], MASKED, masked(layers.Bidirectional(
        layers.SimpleRNN(4, name="r", **ONE_TANH), merge_mode="sum", name="b"))
    yield "bidirectional_pair", x, 1, chain(layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, name="r", **TANH), name="b",
        backward_layer=layers.GRU(5, return_sequences=True, go_backwards=True, name="other", **TANH)))
    yield "time_distributed", [(4, 5)], 1, chain(
        layers.TimeDistributed(layers.Dense(3, activation=exact_tanh, name="d"), name="t"))
    yield "time_distributed_images", [(3, 5, 4, 2)], 1, chain(
        layers.TimeDistributed(layers.Conv2D(3, 3, padding="same", name="c"), name="t"))


def all_of(*parts):
    """Everything that the last layer gives, side by side."""
    def build(x, *states):
        for part in parts[:-1]:
            x = part(x)
        out = parts[-1](x, initial_state=list(states)) if states else parts[-1](x)
        return layers.Concatenate(name="all")([layers.Flatten()(y) for y in out])
    return build


def translate(x, z):
    """An encoder's states start a decoder."""
    m = layers.Masking(0.0)(x)
    _, h, c = layers.LSTM(4, return_state=True, name="encoder", **TANH)(m)
    return layers.LSTM(4, return_sequences=True, name="decoder", **TANH)(z, initial_state=[h, c])


def state_cases():
    x = [(5, 3)]
    both = dict(return_sequences=True, return_state=True, name="r")
    yield "lstm_return_state", x, 1, all_of(layers.LSTM(4, **both, **TANH))
    yield "lstm_return_state_masked", [(6, 3)], MASKED, all_of(
        layers.Masking(0.0), layers.LSTM(4, go_backwards=True, return_state=True, name="r", **TANH))
    yield "gru_return_state", [(5, 3), (4,)], 1, all_of(layers.GRU(4, **both, **TANH))
    yield "simple_return_state", x, 1, all_of(layers.SimpleRNN(4, return_state=True, name="r", **ONE_TANH))
    yield "bidirectional_state", x, 1, all_of(layers.Bidirectional(
        layers.LSTM(4, **both, **TANH), name="b"))
    yield "bidirectional_apart", [(6, 3)], MASKED, all_of(layers.Masking(0.0), layers.Bidirectional(
        layers.GRU(4, **both, **TANH), merge_mode=None, name="b"))
    yield "bidirectional_first_state", [(5, 3), (4,), (4,), (4,), (4,)], 1, with_state(layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, name="r", **TANH), name="b"))
    yield "encoder_decoder", [(6, 3), (6, 2)], MASKED, translate
    yield "time_distributed_masked", [(3, 4, 2)], MASKED, masked(layers.TimeDistributed(
        layers.LSTM(3, name="r", **TANH), name="t"))
    yield "time_distributed_handed_on", [(6, 3)], MASKED, masked(
        layers.TimeDistributed(layers.Dense(4, name="d"), name="t"), layers.GRU(3, name="r", **TANH))


def text_network():
    """Token 0 is padding."""
    x = layers.Input((7,), dtype="int32")
    e = layers.Embedding(11, 6, mask_zero=True, name="emb")(x)
    r = layers.LSTM(5, name="lstm", **TANH)(e)
    return keras.Model(x, layers.Dense(3, activation="softmax", name="head")(r)), 3, (BATCH,)


def next_token_network():
    """A class for each step, two layers deep."""
    x = layers.Input((6,), dtype="int32")
    e = layers.Embedding(11, 6, name="emb")(x)
    a = layers.Bidirectional(layers.GRU(4, return_sequences=True, name="gru", **TANH), name="both")(e)
    r = layers.LSTM(5, return_sequences=True, name="lstm", **TANH)(a)
    y = layers.Dense(11, activation="softmax", name="head")(r)
    return keras.Model(x, y), 11, (BATCH, 6)


def padded_network():
    """A class for each step of padded text: steps without a token count neither in the loss nor in accuracy."""
    x = layers.Input((7,), dtype="int32")
    e = layers.Embedding(11, 6, mask_zero=True, name="emb")(x)
    r = layers.LSTM(5, return_sequences=True, name="lstm", **TANH)(e)
    return keras.Model(x, layers.Dense(11, activation="softmax", name="head")(r)), 11, (BATCH, 7)


def main():
    keras.config.set_floatx("float64")
    cases = [answer(*case) for part in (lstm_cases, gru_cases, wrapper_cases, state_cases) for case in part()]
    result = {
        "made_by": "tests/golden/keras_rnn.py",
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "layers": cases,
        "cases": [train(build) for build in (text_network, next_token_network, padded_network)],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

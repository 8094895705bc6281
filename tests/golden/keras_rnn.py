"""Writes keras_rnn.json: recurrent layers and wrappers over steps, as Keras computes them.

    python keras_rnn.py        # with KERAS_BACKEND=jax and JAX_ENABLE_X64=1, which it sets itself

Cases are those of keras_layers2.py, whose functions it uses: outputs, and gradients by every input and
weight, in float64; tests/end_to_end/keras_rnn_test.cc builds the same networks under the same names.
`cases` are networks that Keras trained for ten steps, as in keras_layers.py. Run with Keras 3.15.1 and
JAX.
"""

import json
import pathlib

from keras_layers import BATCH, answer as train  # sets the backend
from keras_layers2 import SEED_SALT, centre, chain, input_values, thinned

import jax
import jax.numpy as jnp
import keras
from counter_hash import real
from keras import layers

MASKED = -30  # about half of the steps are zeros, which Masking leaves out


@keras.saving.register_keras_serializable()
def exact_tanh(x):
    """Keras's own gives float32 whatever the dtype is."""
    return jnp.tanh(x)


TANH = dict(activation=exact_tanh)


def answer(name, shapes, exponent, build):
    """As in keras_layers2.py, for layers that have a generator of random numbers."""
    inputs = [layers.Input(shape) for shape in shapes]
    model = keras.Model(inputs, build(*inputs))
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1) + centre(v.path))
    x = [input_values(i, shape, exponent) for i, shape in enumerate(shapes)]
    fixed = [v.value for v in model.non_trainable_variables]

    def run(weights, values):
        out, _ = model.stateless_call(weights, fixed, values, training=False)
        return (out * real(SEED_SALT, out.shape, 0)).sum(), out

    weights = [v.value for v in model.trainable_variables]
    (_, y), (dw, dx) = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)(weights, x)
    return {"name": name, "paths": paths, "shape": list(y.shape[1:]), "y": thinned(y),
            "dx": [thinned(d) for d in dx],
            "dw": {v.path: thinned(d) for v, d in zip(model.trainable_variables, dw)}}


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
    yield "simple", x, 1, chain(layers.SimpleRNN(4, name="r", **TANH))
    yield "simple_relu", x, 1, chain(
        layers.SimpleRNN(4, activation="relu", return_sequences=True, use_bias=False, name="r"))
    yield "simple_masked", [(6, 3)], MASKED, masked(
        layers.SimpleRNN(4, return_sequences=True, go_backwards=True, name="r", **TANH))
    yield "simple_state", [(5, 3), (4,)], 1, with_state(layers.SimpleRNN(4, name="r", **TANH))


def wrapper_cases():
    x = [(5, 3)]
    for mode in ("concat", "sum", "mul", "ave"):
        yield "bidirectional_" + mode, x, 1, chain(layers.Bidirectional(
            layers.LSTM(4, return_sequences=True, name="r", **TANH), merge_mode=mode, name="b"))
    yield "bidirectional_last", x, 1, chain(layers.Bidirectional(layers.GRU(4, name="r", **TANH), name="b"))
    yield "bidirectional_masked", [(6, 3)], MASKED, masked(layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, name="r", **TANH), name="b"))
    yield "bidirectional_masked_last", [(6, 3)], MASKED, masked(layers.Bidirectional(
        layers.SimpleRNN(4, name="r", **TANH), merge_mode="sum", name="b"))
    yield "bidirectional_pair", x, 1, chain(layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, name="r", **TANH), name="b",
        backward_layer=layers.GRU(5, return_sequences=True, go_backwards=True, name="other", **TANH)))
    yield "time_distributed", [(4, 5)], 1, chain(
        layers.TimeDistributed(layers.Dense(3, activation=exact_tanh, name="d"), name="t"))
    yield "time_distributed_images", [(3, 5, 4, 2)], 1, chain(
        layers.TimeDistributed(layers.Conv2D(3, 3, padding="same", name="c"), name="t"))


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


def main():
    keras.config.set_floatx("float64")
    cases = [answer(*case) for part in (lstm_cases, gru_cases, wrapper_cases) for case in part()]
    result = {
        "made_by": "tests/golden/keras_rnn.py",
        "keras": keras.__version__,
        "jax": jax.__version__,
        "layers": cases,
        "cases": [train(build) for build in (text_network, next_token_network)],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

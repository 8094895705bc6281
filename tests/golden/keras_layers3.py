"""Writes keras_layers3.json: more layers alone, outputs and gradients, as Keras computes them with TensorFlow.

    python keras_layers3.py

The form is that of keras_layers2.json: inputs and weights come from a counter hash, weights salted by their place
among the sorted paths, those called gamma, scale or moving_variance around 1. Numbers are float64 where Keras keeps
them; attention takes its softmax in float32. tests/end_to_end/keras_layers3_test.cc builds the same networks under
the same names. Run with Keras 3.15.1 and TensorFlow 2.21.
"""

import json
import pathlib

import keras_rnn as base
import keras
import numpy as np
import tensorflow as tf
from counter_hash import hashes, real
from keras import layers

LATE = -31  # about half of the steps are zeros, the first ones among them


def input_values(index, shape, exponent):
    if exponent != LATE:
        return base.input_values(index, shape, exponent)
    x = real(base.INPUT_SALT + index, (base.BATCH, *shape), 1)
    if len(shape) > 1:
        x *= (hashes(base.POSITION_SALT, base.BATCH * shape[0]) % 2).reshape(base.BATCH, shape[0], 1)
    return x


def one(layer):
    return lambda x: layer(x)


def merge(layer, **options):
    return lambda *x: layer(list(x), **options)


def masked(layer):
    """The layer on sequences of which zeros are left out, from the states given. Keras drops the mask of a sequence
    that is called with states; it is handed over here."""
    def build(x, *states):
        mask = keras.ops.any(keras.ops.not_equal(x, 0), axis=-1)
        return layer(layers.Masking()(x), initial_state=list(states), mask=mask)
    return build


def masked_pair(layer, **options):
    return lambda a, b: layer([layers.Masking()(a), layers.Masking()(b)], **options)


def attended(layer, mask, **options):
    def build(x):
        m = layers.Masking()(x) if mask else x
        return layer(m, m, **options)
    return build


def attention_mask(layer, **options):
    return lambda q, v, m: layer(q, v, attention_mask=keras.ops.greater(m, -1.0), **options) + keras.ops.mean(
        m, axis=(1, 2), keepdims=True)  # so that m has a slope


def cases():
    r = dict(base.TANH, name="r")
    yield "conv1d_transpose_same_even", [(5, 2)], 1, one(
        layers.Conv1DTranspose(3, 4, strides=2, padding="same", activation="relu", name="c"))
    yield "conv1d_transpose_valid", [(4, 2)], 1, one(layers.Conv1DTranspose(3, 2, strides=3, name="c"))
    yield "depthwise1d_same_even", [(7, 3)], 1, one(
        layers.DepthwiseConv1D(4, strides=2, padding="same", depth_multiplier=2, name="c"))
    yield "depthwise1d_dilated", [(9, 3)], 1, one(layers.DepthwiseConv1D(3, dilation_rate=2, name="c"))
    yield "separable1d_same", [(7, 3)], 1, one(
        layers.SeparableConv1D(4, 4, strides=2, padding="same", depth_multiplier=2, name="c"))
    yield "separable1d_valid", [(7, 3)], 1, one(layers.SeparableConv1D(4, 3, use_bias=False, name="c"))
    yield "conv3d_transpose_same", [(3, 2, 4, 2)], 1, one(
        layers.Conv3DTranspose(3, (4, 2, 3), strides=(2, 1, 2), padding="same", name="c"))
    yield "conv3d_transpose_valid", [(2, 3, 2, 2)], 1, one(
        layers.Conv3DTranspose(3, (2, 3, 2), strides=(3, 1, 2), use_bias=False, name="c"))
    yield "zero_padding3d", [(2, 3, 4, 2)], 1, one(layers.ZeroPadding3D(((1, 0), (2, 1), (0, 3))))
    yield "cropping3d", [(5, 4, 6, 2)], 1, one(layers.Cropping3D(((1, 2), (0, 1), (2, 3))))
    yield "up_sampling3d", [(2, 3, 2, 2)], 1, one(layers.UpSampling3D((2, 1, 3)))
    yield "attention", [(5, 4), (6, 3), (6, 4)], 1, merge(layers.Attention())
    yield "attention_scale", [(5, 4), (6, 4)], 1, merge(layers.Attention(use_scale=True, name="a"))
    yield "attention_concat", [(5, 4), (6, 4)], 1, merge(
        layers.Attention(use_scale=True, score_mode="concat", name="a"))
    yield "attention_causal", [(5, 4), (6, 4)], 1, merge(layers.Attention(), use_causal_mask=True)
    yield "attention_masked", [(5, 4), (6, 4)], LATE, masked_pair(layers.Attention())
    yield "attention_masked_causal", [(5, 4), (6, 4)], LATE, masked_pair(layers.Attention(), use_causal_mask=True)
    yield "additive", [(5, 4), (6, 4)], 1, merge(layers.AdditiveAttention(name="a"))
    yield "additive_plain", [(5, 4), (6, 4)], 1, merge(layers.AdditiveAttention(use_scale=False))
    yield "heads_output_shape", [(5, 4)], 1, attended(
        layers.MultiHeadAttention(2, 3, output_shape=7, name="m"), False)
    yield "heads_masked", [(5, 4)], LATE, attended(layers.MultiHeadAttention(2, 3, name="m"), True)
    yield "heads_masked_causal", [(5, 4)], LATE, attended(
        layers.MultiHeadAttention(2, 3, name="m"), True, use_causal_mask=True)
    yield "heads_masked_values", [(5, 4)], LATE, attended(
        layers.MultiHeadAttention(2, 3, value_dim=2, name="m"), True)
    yield "heads_attention_mask", [(5, 4), (6, 4), (5, 6)], 1, attention_mask(
        layers.MultiHeadAttention(2, 3, name="m"))
    yield "heads_attention_mask_causal", [(5, 4), (6, 4), (5, 6)], 1, attention_mask(
        layers.MultiHeadAttention(2, 3, name="m"), use_causal_mask=True)
    yield "grouped_attention_mask", [(5, 4), (6, 4), (5, 6)], 1, attention_mask(
        layers.GroupQueryAttention(3, 4, 2, name="m"))
    yield "grouped_masked", [(5, 4)], LATE, attended(layers.GroupQueryAttention(3, 4, 2, name="m"), True)
    yield "lstm_late", [(6, 3), (4,), (4,)], LATE, masked(layers.LSTM(4, return_sequences=True, **r))
    yield "lstm_late_last", [(6, 3), (4,), (4,)], LATE, masked(layers.LSTM(4, **r))
    yield "lstm_late_backwards", [(6, 3), (4,), (4,)], LATE, masked(
        layers.LSTM(4, return_sequences=True, go_backwards=True, **r))
    yield "gru_late", [(6, 3), (4,)], LATE, masked(layers.GRU(4, return_sequences=True, **r))
    yield "simple_late", [(2, 3), (4,)], LATE, masked(layers.SimpleRNN(4, activation=base.exact_tanh, name="r"))
    plain = dict(recurrent_activation=base.exact_sigmoid, name="r")
    yield "lstm_softsign", [(5, 3), (4,), (4,)], 1, lambda x, *s: layers.LSTM(
        4, activation="softsign", return_sequences=True, **plain)(x, initial_state=list(s))
    yield "lstm_selu_backwards", [(5, 3)], 1, one(
        layers.LSTM(4, activation="selu", return_sequences=True, go_backwards=True, **plain))
    yield "gru_elu", [(6, 3)], LATE, lambda x: layers.GRU(
        4, activation="elu", return_sequences=True, **plain)(layers.Masking()(x))
    yield "gru_elu_before", [(5, 3)], 1, one(layers.GRU(4, activation="elu", reset_after=False, **plain))
    yield "simple_softsign", [(5, 3)], 1, one(layers.SimpleRNN(4, activation="softsign", name="r"))
    yield "bidirectional_softsign", [(6, 3)], LATE, lambda x: layers.Bidirectional(
        layers.SimpleRNN(4, activation="softsign", return_sequences=True, name="r"), name="b")(layers.Masking()(x))
    yield "bidirectional_late", [(6, 3), (4,), (4,)], LATE, masked(
        layers.Bidirectional(layers.GRU(4, return_sequences=True, **r), name="b"))


def training():
    yield "time_distributed_norm", [(4, 3)], 1, one(
        layers.TimeDistributed(layers.BatchNormalization(momentum=0.7, name="n"), name="t"))


def metrics():
    """Of several numbers: the targets are 0 and 1, one class a row."""
    p = real(1, (8, 3), -1, 0.5)
    y = np.eye(3)[hashes(2, 8) % 3]
    m = keras.metrics
    for name, metric in [("precision", m.Precision(thresholds=[0.3, 0.6])), ("recall", m.Recall(thresholds=[0.3, 0.6])),
                         ("false_negatives", m.FalseNegatives(thresholds=[0.3, 0.5, 0.6])),
                         ("f1", m.F1Score(average=None)), ("fbeta", m.FBetaScore(average=None, beta=0.5, threshold=0.4))]:
        metric.update_state(y, p)
        yield {"name": name, "values": np.asarray(metric.result(), np.float64).tolist()}


def centre(path):
    return 1.0 if path.endswith(("gamma", "scale", "moving_variance")) else 0.0


def answer(name, shapes, exponent, build, training=False):
    inputs = [layers.Input(shape) for shape in shapes]
    model = keras.Model(inputs, build(*inputs))
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1) + centre(v.path))
    x = [tf.constant(input_values(i, shape, exponent)) for i, shape in enumerate(shapes)]
    weights = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        for value in x:
            tape.watch(value)
        y = model(x if len(x) > 1 else x[0], training=training)
        total = tf.reduce_sum(tf.cast(y, tf.float64) * real(base.SEED_SALT, tuple(y.shape), 0))
    slopes = [np.asarray(s) for s in tape.gradient(total, x + weights)]
    result = {"name": name, "paths": paths, "shape": list(y.shape[1:]), "y": base.thinned(y.numpy()),
              "dx": [base.thinned(d) for d in slopes[:len(x)]]}
    if training:
        result["moved"] = {v.path: base.thinned(v.numpy()) for v in model.non_trainable_variables if v.path in paths}
    result["dw"] = {v.path: base.thinned(d) for v, d in zip(model.trainable_variables, slopes[len(x):])}
    return result


def main():
    keras.config.set_floatx("float64")
    result = {"made_by": "tests/golden/keras_layers3.py", "keras": keras.__version__, "tensorflow": tf.__version__}
    result["cases"] = [answer(*case) for case in cases()]
    result["training"] = [answer(*case, training=True) for case in training()]
    result["metrics"] = list(metrics())
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

"""Writes keras_layers4.json: options of layers beyond the usual ones, and layers with states between batches.

    python keras_layers4.py

The form of `cases` and `training` is that of keras_layers3.json. `stateful` holds what a network answers to three
batches one after the other, the loss of a step of SGD on a fourth, and its answer behind reset_state().
tests/end_to_end/keras_layers4_test.cc builds the same networks under the same names. Run with Keras 3.15.1 and
TensorFlow 2.21.
"""

import json
import pathlib

import keras_layers3 as more
import keras_rnn as base
import keras
import numpy as np
import tensorflow as tf
from counter_hash import real
from keras import layers

one, LATE = more.one, more.LATE


def cubic(size):
    """What Keras computes with JAX. With TensorFlow it looks up shares of pixels in a table of 1024 places, unless
    antialias is set."""
    def build(x):
        def resize(x):
            scale = tf.constant(size, tf.float32) / tf.cast(tf.shape(x)[1:3], tf.float32)
            return tf.raw_ops.ScaleAndTranslate(images=x, size=size, scale=scale, translation=[0.0, 0.0],
                                                kernel_type="keyscubic", antialias=False)
        return layers.Lambda(resize, output_shape=(*size, x.shape[-1]), dtype="float32")(x)
    return build


def masked(*stack):
    def build(x):
        x = layers.Masking()(x)
        for layer in stack:
            x = layer(x)
        return x
    return build


def cases():
    c = dict(name="c")
    yield "transpose1d_more", [(4, 2)], 1, one(layers.Conv1DTranspose(3, 3, strides=3, output_padding=2, **c))
    yield "transpose2d_more_same", [(3, 4, 2)], 1, one(
        layers.Conv2DTranspose(3, (3, 4), strides=(2, 3), padding="same", output_padding=(0, 2), **c))
    yield "transpose2d_more_valid", [(3, 2, 2)], 1, one(
        layers.Conv2DTranspose(2, (2, 3), strides=(3, 2), output_padding=(2, 0), use_bias=False, **c))
    yield "transpose2d_none_more", [(3, 2, 2)], 1, one(
        layers.Conv2DTranspose(2, 1, strides=3, output_padding=0, padding="same", **c))
    yield "transpose3d_more_same", [(2, 3, 2, 2)], 1, one(
        layers.Conv3DTranspose(2, (3, 2, 3), strides=(2, 2, 3), padding="same", output_padding=(1, 1, 1), **c))
    yield "resizing_bicubic_larger", [(3, 4, 2)], 1, cubic((5, 9))
    yield "resizing_bicubic_smaller", [(9, 7, 2)], 1, cubic((4, 3))
    for kind in ("bilinear", "bicubic", "lanczos3", "lanczos5"):
        yield f"resizing_{kind}_filtered", [(9, 5, 2)], 1, one(layers.Resizing(4, 7, kind, antialias=True, dtype="float32"))
    yield "resizing_lanczos3", [(5, 6, 2)], 1, one(layers.Resizing(7, 4, "lanczos3", dtype="float32"))
    yield "resizing_padded", [(4, 7, 2)], 1, one(
        layers.Resizing(6, 5, pad_to_aspect_ratio=True, fill_value=1.5, dtype="float32"))
    yield "resizing_cropped", [(4, 9, 2)], 1, one(
        layers.Resizing(6, 5, "lanczos3", crop_to_aspect_ratio=True, antialias=True, dtype="float32"))
    yield "up_sampling_lanczos5", [(3, 4, 2)], 1, one(
        layers.UpSampling2D((2, 3), interpolation="lanczos5", dtype="float32"))
    yield "center_crop", [(7, 6, 2)], 1, one(layers.CenterCrop(4, 3))
    yield "center_crop_smaller", [(3, 6, 2)], 1, one(layers.CenterCrop(5, 4, dtype="float32"))
    yield "layer_norm_two_axes", [(3, 4)], 1, one(layers.LayerNormalization(axis=[1, 2], name="n"))
    yield "layer_norm_first_axis", [(3, 4, 2)], 1, one(layers.LayerNormalization(axis=1, scale=False, name="n"))
    yield "layer_norm_outer_axes", [(3, 4, 2)], 1, one(layers.LayerNormalization(axis=[1, 3], name="n"))
    yield "rms_two_axes", [(3, 4)], 1, one(layers.RMSNormalization(axis=[1, 2], name="n"))
    yield "unit_two_axes", [(3, 4)], 1, one(layers.UnitNormalization(axis=[1, 2]))
    yield "softmax_two_axes", [(3, 4, 2)], 1, one(layers.Softmax(axis=[1, 3]))
    yield "batch_norm_first_axis", [(3, 4)], 1, one(layers.BatchNormalization(axis=1, name="n"))
    yield "spatial_dropout_masked", [(5, 3)], LATE, masked(
        layers.SpatialDropout1D(0.5), layers.GlobalAveragePooling1D())
    for layer in ("Multiply", "Maximum", "Minimum"):
        yield f"{layer.lower()}_masked", [(5, 3), (5, 3)], LATE, more.masked_pair(getattr(layers, layer)())
        yield f"{layer.lower()}_one_masked", [(5, 3), (5, 3)], LATE, lambda a, b, layer=layer: getattr(
            layers, layer)()([layers.Masking()(a), b])
    yield "batch_norm_masked_inference", [(5, 3)], LATE, masked(
        layers.BatchNormalization(name="n"), layers.GlobalAveragePooling1D())


def training():
    n = dict(momentum=0.7, name="n")
    yield "batch_norm_masked", [(5, 3)], LATE, masked(layers.BatchNormalization(**n))
    yield "batch_norm_masked_plain", [(5, 3)], LATE, masked(
        layers.BatchNormalization(center=False, scale=False, **n), layers.GlobalAveragePooling1D())
    yield "batch_norm_masked_first_axis", [(5, 3)], LATE, masked(layers.BatchNormalization(axis=1, **n))
    yield "batch_norm_middle_axis", [(2, 3, 4)], 1, one(layers.BatchNormalization(axis=2, **n))


def stateful():
    r = dict(base.TANH, stateful=True, name="r")
    s = dict(activation=base.exact_tanh, stateful=True, name="r")
    yield "lstm", [layers.LSTM(4, **r)]
    yield "lstm_masked_sequence", [layers.Masking(), layers.LSTM(4, return_sequences=True, **r)]
    yield "gru_backwards", [layers.GRU(3, go_backwards=True, return_sequences=True, **r)]
    yield "simple_softsign", [layers.SimpleRNN(3, activation="softsign", stateful=True, name="r")]
    yield "two", [layers.SimpleRNN(3, return_sequences=True, **s), layers.GRU(2, **dict(r, name="r2"))]
    yield "bidirectional", [layers.Bidirectional(layers.LSTM(2, **r), name="b")]


def states_answer(name, stack):
    model = keras.Sequential([layers.Input(batch_shape=(base.BATCH, 5, 3)), *stack])
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    weights = [v for v in model.weights if "rnn_state" not in v.path and "seed" not in v.path]
    model_name = model.name + "/"
    paths = sorted(v.path.removeprefix(model_name) for v in weights)
    for v in weights:
        v.assign(real(paths.index(v.path.removeprefix(model_name)), v.shape, -1))
    batches = [more.input_values(i, (5, 3), LATE) for i in range(4)]
    y = [model.predict(x, batch_size=base.BATCH, verbose=0) for x in batches[:3]]
    target = real(base.SEED_SALT, y[0].shape, 0)
    loss = model.train_on_batch(batches[3], target)
    behind = model.predict(batches[0], batch_size=base.BATCH, verbose=0)
    for layer in model.layers:
        if hasattr(layer, "reset_state"):
            layer.reset_state()
    anew = model.predict(batches[0], batch_size=base.BATCH, verbose=0)
    return {"name": name, "paths": paths, "y": [base.thinned(v) for v in y], "loss": float(loss),
            "behind": base.thinned(behind), "anew": base.thinned(anew)}


def main():
    keras.config.set_floatx("float64")
    result = {"made_by": "tests/golden/keras_layers4.py", "keras": keras.__version__, "tensorflow": tf.__version__}
    result["cases"] = [more.answer(*case) for case in cases()]
    result["training"] = [more.answer(*case, training=True) for case in training()]
    result["stateful"] = [states_answer(*case) for case in stateful()]
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

"""Writes keras_images.json: small networks of layers over images as Keras trains them.

    python keras_images.py        # beside keras_layers.py, which trains them and says how

tests/end_to_end/keras_images_test.cc builds the same networks.
"""

import json
import pathlib

import keras_layers
from keras_layers import BATCH, jax, keras, layers


def convolutions():
    """Padding, strides, dilation, groups and depthwise kernels."""
    x = layers.Input((9, 8, 3))
    h = layers.ZeroPadding2D(((1, 2), (0, 3)), name="pad")(x)
    h = layers.Conv2D(6, 3, strides=2, activation="relu", name="strided")(h)
    h = layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same", name="depthwise")(h)
    h = layers.ReLU(max_value=0.4, name="clipped")(h)
    h = layers.DepthwiseConv2D((3, 2), strides=2, padding="same", use_bias=False, name="halved")(h)
    h = layers.Conv2D(4, (2, 3), dilation_rate=(2, 1), groups=2, padding="same", name="grouped")(h)
    h = layers.ZeroPadding2D((1, 0), name="rows")(layers.LeakyReLU(name="leaky")(h))
    h = layers.GlobalAveragePooling2D(name="mean")(h)
    return keras.Model(x, layers.Dense(3, activation="softmax", name="head")(h)), 3, (BATCH,)


def pools():
    """Overlapping and padded pools, separable and transposed convolutions, upsampling."""
    x = layers.Input((7, 9, 4))
    a = layers.MaxPooling2D(3, strides=2, padding="same", name="max")(x)
    b = layers.AveragePooling2D((3, 2), strides=2, padding="same", name="average")(x)
    h = layers.Concatenate(name="cat")([a, b])
    h = layers.SeparableConv2D(5, 3, padding="same", activation="silu", name="separable")(h)
    h = layers.UpSampling2D((1, 2), name="nearest")(h)
    h = layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="elu", name="same")(h)
    h = layers.Conv2DTranspose(4, (2, 3), strides=(3, 2), activation="leaky_relu", name="valid")(h)
    h = layers.MaxPooling2D((2, 3), strides=1, name="dense_max")(h)
    h = layers.UpSampling2D((2, 3), interpolation="bilinear", name="bilinear")(h)
    h = layers.AveragePooling2D(2, name="halves")(h)
    h = layers.GlobalMaxPooling2D(keepdims=True, name="largest")(h)
    h = layers.Flatten(name="flat")(h)
    return keras.Model(x, layers.Dense(3, activation="softmax", name="head")(h)), 3, (BATCH,)


def rectifiers():
    """ReLU with its three numbers, and padding before a pool of values that may be negative."""
    x = layers.Input((6, 6, 5))
    h = layers.Conv2D(7, 1, name="one")(x)
    h = layers.ReLU(max_value=0.8, negative_slope=0.25, threshold=0.125, name="bent")(h)
    h = layers.MaxPooling2D(3, strides=2, name="padded")(layers.ZeroPadding2D(1, name="zeros")(h))
    h = layers.ReLU(negative_slope=0.5, name="half")(layers.Conv2D(6, 1, strides=2, name="two")(h))
    h = layers.Activation("relu6", name="six")(layers.Conv2D(6, 2, padding="same", name="three")(h))
    h = layers.GlobalAveragePooling2D(keepdims=True, name="mean")(h)
    h = layers.Conv2D(4, 1, activation="softmax", name="head")(h)
    return keras.Model(x, h), 4, (BATCH, 1, 1)


def main():
    result = {
        "made_by": "tests/golden/keras_images.py",
        "keras": keras.__version__,
        "jax": jax.__version__,
        "cases": [keras_layers.answer(b) for b in (convolutions, pools, rectifiers)],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

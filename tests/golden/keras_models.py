"""Writes keras_models.txt and keras_models.json: the built-in image models as Keras has them.

    python keras_models.py                      # every layer, its output and its weights
    python keras_models.py losses [MODEL...]    # ten losses in float64, and that of inference

resnet50, mobilenet-v2 and densenet121 are those of keras.applications. resnet18 and unet are not
there: they are written here from their definitions. Weights and data come from a counter hash scaled
by powers of two; tests/end_to_end/keras_models_test.cc computes the same numbers. Run with Keras
3.15.1 and JAX on a CPU.
"""

import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import keras
import jax
import numpy as np
from keras import layers as L

import counter_hash
from counter_hash import hashes

STEPS = 10
INPUT_SALT, LABEL_SALT = 1001, 1002


def resnet18(shape, classes):
    def conv_bn(x, filters, kernel, stride, name):
        x = L.Conv2D(filters, kernel, stride, use_bias=False, name=name + "_conv")(x)
        return L.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name + "_bn")(x)

    image = keras.Input(shape)
    x = conv_bn(L.ZeroPadding2D(3, name="conv1_pad")(image), 64, 7, 2, "conv1")
    x = L.ZeroPadding2D(1, name="pool1_pad")(L.Activation("relu", name="conv1_relu")(x))
    x = L.MaxPooling2D(3, 2, name="pool1_pool")(x)
    for stack, filters in enumerate((64, 128, 256, 512), 2):
        for block in (1, 2):
            name = f"conv{stack}_block{block}"
            stride = 2 if stack > 2 and block == 1 else 1
            y = L.ZeroPadding2D(1, name=name + "_1_pad")(x)
            y = L.Activation("relu", name=name + "_1_relu")(conv_bn(y, filters, 3, stride, name + "_1"))
            y = L.ZeroPadding2D(1, name=name + "_2_pad")(y)
            y = conv_bn(y, filters, 3, 1, name + "_2")
            if stride > 1:
                x = conv_bn(x, filters, 1, stride, name + "_0")
            x = L.Activation("relu", name=name + "_out")(L.Add(name=name + "_add")([x, y]))
    x = L.GlobalAveragePooling2D(name="avg_pool")(x)
    return keras.Model(image, L.Dense(classes, activation="softmax", name="predictions")(x))


def unet(shape, classes):
    def two(x, channels, name):
        for which in ("_conv1", "_conv2"):
            x = L.Conv2D(channels, 3, padding="same", activation="relu", name=name + which)(x)
        return x

    image = x = keras.Input(shape)
    skips = []
    for level, channels in enumerate((32, 64, 128, 256), 1):
        skips.append(two(x, channels, f"down{level}"))
        x = L.MaxPooling2D(2, name=f"down{level}_pool")(skips[-1])
    x = two(x, 512, "bottom")
    for level, channels in ((4, 256), (3, 128), (2, 64), (1, 32)):
        x = L.Conv2DTranspose(channels, 2, strides=2, name=f"up{level}_transpose")(x)
        x = L.Concatenate(name=f"up{level}_concat")([x, skips[level - 1]])
        x = two(x, channels, f"up{level}")
    return keras.Model(image, L.Conv2D(classes, 1, activation="softmax", name="head")(x))


def application(build):
    return lambda shape, classes: build(weights=None, input_shape=shape, classes=classes)


MODELS = {
    "resnet18": (resnet18, (224, 224, 3), 1000),
    "resnet50": (application(keras.applications.ResNet50), (224, 224, 3), 1000),
    "mobilenet-v2": (application(keras.applications.MobileNetV2), (224, 224, 3), 1000),
    "densenet121": (application(keras.applications.DenseNet121), (224, 224, 3), 1000),
    "unet": (unet, (256, 256, 3), 3),
}
# name: shape, classes, batch, learning rate
LOSSES = {
    "resnet18": ((64, 64, 3), 10, 4, 0.000002),
    "unet": ((32, 32, 3), 3, 2, 0.0001),
    "mobilenet-v2": ((64, 64, 3), 10, 8, 0.000001),
    # Last maps of 4x4: 256 numbers a channel, which batch statistics in 16 bits need.
    "mobilenet-v2 128x128": ((128, 128, 3), 10, 16, 0.000001),
    "densenet121": ((64, 64, 3), 10, 4, 0.000001),
}


def text(shape):
    return "x".join(str(dim) for dim in shape)


def structure():
    """One line a model: name, input, parameters; one a layer: name, kind, output, weights."""
    lines = ["# made by tests/golden/keras_models.py, Keras " + keras.__version__]
    for name, (build, shape, classes) in MODELS.items():
        keras.utils.clear_session()
        model = build(shape, classes)
        lines.append(f"model {name} {text(shape)} {model.count_params()}")
        for layer in model.layers[1:]:
            words = [layer.name, type(layer).__name__, text(layer.output.shape[1:])]
            for v in layer.weights:
                mark = "" if v.trainable else "-"
                words.append(f"{mark}{v.path[len(layer.name) + 1:]}:{text(v.shape)}")
            lines.append(" ".join(words))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


def real(salt, shape, exponent, centre=0.0):
    """Rounded to float32, in which the networks hold them."""
    values = counter_hash.real(salt, shape, exponent).astype(np.float32) + np.float32(centre)
    return values.astype(np.float64)


def initial(salt, path, shape):
    if path.endswith("kernel"):
        # He's width, rounded down to a power of two. Depthwise kernels (3, 3, C, 1) sum 9 products.
        fan = int(np.prod(shape[:2])) if shape[-1] == 1 else int(np.prod(shape[:-1]))
        exponent = 0
        while fan > 6 * 4 ** (-exponent):
            exponent -= 1
        return real(salt, shape, exponent)
    one = path.endswith("gamma") or path.endswith("variance")
    return real(salt, shape, -3 if one else -5, 1.0 if one else 0.0)


def losses(name):
    keras.utils.clear_session()
    keras.config.set_floatx("float64")
    shape, classes, batch, rate = LOSSES[name]
    model = MODELS[name.split()[0]][0](shape, classes)
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(initial(paths.index(v.path), v.path, v.shape))
    x = real(INPUT_SALT, (batch, *shape), 0)
    label_shape = (batch, *model.output_shape[1:-1])
    y = (hashes(LABEL_SALT, int(np.prod(label_shape))) % np.uint32(classes)).astype(np.int32)
    y = y.reshape(label_shape)
    model.compile(keras.optimizers.Adam(learning_rate=rate), "sparse_categorical_crossentropy")
    out = []
    for _ in range(STEPS):
        model.reset_metrics()
        out.append(float(model.train_on_batch(x, y)))
    inference = float(model.evaluate(x, y, verbose=0, batch_size=batch))
    print(name, out, inference, file=sys.stderr)
    return {
        "model": name,
        "input": list(shape),
        "classes": classes,
        "batch": batch,
        "learning_rate": rate,
        "weights": len(paths),
        "losses": out,
        "inference": inference,
    }


def main():
    if sys.argv[1:2] != ["losses"]:
        return structure()
    path = pathlib.Path(__file__).with_suffix(".json")
    cases = {c["model"]: c for c in json.loads(path.read_text())["cases"]} if path.exists() else {}
    for name in sys.argv[2:] or LOSSES:
        cases[name] = losses(name)
    answer = {
        "made_by": "tests/golden/keras_models.py",
        "keras": keras.__version__,
        "jax": jax.__version__,
        "cases": [cases[name] for name in LOSSES if name in cases],
    }
    path.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()

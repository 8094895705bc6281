"""Writes keras_layers2.json: each layer alone, outputs and gradients, as Keras computes them.

    python keras_layers2.py        # with KERAS_BACKEND=jax and JAX_ENABLE_X64=1, which it sets itself

A case is a network of one or a few layers. Inputs and weights come from a counter hash, weights
salted by their place among the sorted paths; tests/end_to_end/keras_layers2_test.cc computes the same
numbers and builds the same networks under the same names. Stored are the output y, and the gradients
of sum(y * r), r hashed too, by every input and trainable weight, in float64, thinned out. Attention
scores are asked for because JAX's fused attention, without them, computes in float32. `trained` holds
networks with regularizers and constraints: losses of five steps of SGD and the weights behind them.
Keras's sparsemax is left out: it sums the wrong threshold and gives no point of the simplex.
Run with Keras 3.15.1 and JAX.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import keras
import numpy as np
from counter_hash import hashes, real
from keras import layers
from keras.src import backend

# Keras takes these in float32 whatever the dtype is; here they are what its formulas say.
for name in ("mean", "std", "var"):
    setattr(backend.numpy, name, lambda x, axis=None, keepdims=False, f=getattr(jax.numpy, name): f(
        x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims))
backend.numpy.tanh = jax.numpy.tanh
keras.config.set_floatx("float64")

BATCH = 3
INPUT_SALT, LABEL_SALT, SEED_SALT = 1001, 2002, 3003
MOST_VALUES = 16

ACTIVATIONS = [
    "linear", "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "silu", "softmax", "log_softmax",
    "sigmoid", "log_sigmoid", "hard_sigmoid", "sparse_sigmoid", "hard_silu", "tanh",
    "hard_tanh", "tanh_shrink", "soft_shrink", "hard_shrink", "softplus", "sparse_plus", "squareplus",
    "softsign", "mish", "gelu", "exponential", "glu"]


def chain(*parts):
    def build(x):
        for part in parts:
            x = part(x)
        return x
    return build


def masked_attention(x):
    m = layers.Masking(0.0, name="mask")(x)
    return layers.MultiHeadAttention(2, 3, name="mha")(m, m, return_attention_scores=True)[0]


def attended(**options):
    return lambda x: layers.MultiHeadAttention(2, 3, name="mha")(
        x, x, return_attention_scores=True, **options)[0]


def grouped(causal):
    def build(x):
        layer = layers.GroupQueryAttention(3, 4, 2, name="gqa")
        return layer(x, x, use_causal_mask=causal, return_attention_scores=True)[0]
    return build


def merge(layer):
    return lambda *x: layer(list(x))



def cases():
    """(name, shapes of one sample, exponent of the inputs, network)"""
    for name in ACTIVATIONS:
        yield "activation/" + name, [(4, 6)], 2, chain(layers.Activation(name))
    one = [
        ("softmax_axis", (4, 5), layers.Softmax(axis=1)),
        ("elu_layer", (7,), layers.ELU(0.3)),
        ("leaky_relu_layer", (7,), layers.LeakyReLU()),
        ("relu_all", (17,), layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.25)),
        ("relu_threshold", (17,), layers.ReLU(threshold=0.5)),
        ("prelu", (3, 4), layers.PReLU(name="p")),
        ("prelu_shared", (3, 4, 2), layers.PReLU(shared_axes=[1, 2], name="p")),
        ("conv1d_same_even", (7, 3), layers.Conv1D(4, 4, strides=2, padding="same", name="c")),
        ("conv1d_causal", (9, 2), layers.Conv1D(3, 3, padding="causal", dilation_rate=2, name="c")),
        ("conv1d_groups", (8, 4),
         layers.Conv1D(6, 3, groups=2, use_bias=False, activation="relu", name="c")),
        ("conv2d_same_even", (5, 7, 2), layers.Conv2D(3, (4, 2), strides=2, padding="same", name="c")),
        ("conv3d", (4, 5, 6, 2), layers.Conv3D(3, (2, 3, 2), name="c")),
        ("conv3d_same_even", (5, 4, 3, 2),
         layers.Conv3D(4, (4, 2, 3), strides=(2, 1, 2), padding="same", name="c")),
        ("conv3d_dilated", (7, 3, 5, 2),
         layers.Conv3D(4, (3, 2, 2), strides=(1, 2, 1), groups=2, activation="tanh", name="c")),
        ("max_pooling1d", (7, 3), layers.MaxPooling1D(2, strides=3, padding="same")),
        ("average_pooling1d", (7, 3), layers.AveragePooling1D(4, strides=2, padding="same")),
        ("global_average1d", (5, 3), layers.GlobalAveragePooling1D()),
        ("global_max1d", (5, 3), layers.GlobalMaxPooling1D(keepdims=True)),
        ("global_average2d", (3, 4, 2), layers.GlobalAveragePooling2D(keepdims=True)),
        ("global_max2d", (3, 4, 2), layers.GlobalMaxPooling2D()),
        ("global_average3d", (2, 3, 4, 2), layers.GlobalAveragePooling3D()),
        ("global_max3d", (2, 3, 4, 2), layers.GlobalMaxPooling3D(keepdims=True)),
        ("cropping1d", (6, 2), layers.Cropping1D((1, 2))),
        ("cropping2d", (6, 5, 2), layers.Cropping2D(((1, 2), (0, 1)))),
        ("zero_padding1d", (3, 2), layers.ZeroPadding1D((2, 1))),
        ("up_sampling1d", (3, 2), layers.UpSampling1D(3)),
        ("up_sampling2d", (3, 5, 2), layers.UpSampling2D((3, 2), interpolation="bilinear")),
        ("resizing_up", (3, 5, 2), layers.Resizing(7, 8)),
        ("resizing_down", (7, 9, 2), layers.Resizing(3, 4)),
        ("resizing_nearest", (5, 7, 2), layers.Resizing(8, 3, interpolation="nearest")),
        ("resizing_crop", (5, 9, 1), layers.Resizing(4, 3, crop_to_aspect_ratio=True)),
        ("resizing_pad", (4, 9, 1), layers.Resizing(6, 5, pad_to_aspect_ratio=True)),
        ("group_norm", (3, 4, 6), layers.GroupNormalization(2, name="n")),
        ("instance_norm", (5, 4), layers.GroupNormalization(-1, epsilon=1e-2, name="n")),
        ("group_norm_axis", (6, 3), layers.GroupNormalization(3, axis=1, center=False, name="n")),
        ("rms_norm", (4, 7), layers.RMSNormalization(name="n")),
        ("unit_norm", (4, 3), layers.UnitNormalization()),
        ("layer_norm", (4, 5), layers.LayerNormalization(name="n")),
        ("einsum", (5,), layers.EinsumDense("ab,bc->ac", 4, bias_axes="c", name="e")),
        ("einsum_heads", (3, 5),
         layers.EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de", name="e")),
        ("einsum_shared", (3, 2, 4),
         layers.EinsumDense("bthd,hde->bhte", (2, 3, 5), activation="tanh", name="e")),
        ("einsum_ellipsis", (2, 3, 4), layers.EinsumDense("...x,xy->...y", 5, bias_axes="y", name="e")),
        ("einsum_right", (3, 2, 2), layers.EinsumDense("ab...,bc->ac...", 4, bias_axes="c", name="e")),
        ("dense", (5,), layers.Dense(4, activation="relu", name="d")),
        ("dense_positions", (3, 5), layers.Dense(4, use_bias=False, name="d")),
        ("conv1d_same_dilated", (9, 3), layers.Conv1D(4, 4, padding="same", dilation_rate=2, name="c")),
        ("conv2d_same_dilated", (9, 7, 2),
         layers.Conv2D(3, (2, 4), padding="same", dilation_rate=(2, 1), name="c")),
        ("conv2d_groups", (7, 5, 4), layers.Conv2D(6, 3, strides=(2, 3), groups=2, name="c")),
        ("depthwise_same_even", (5, 7, 3),
         layers.DepthwiseConv2D((4, 2), strides=2, padding="same", depth_multiplier=2, name="c")),
        ("depthwise_valid", (7, 5, 3), layers.DepthwiseConv2D(3, use_bias=False, name="c")),
        ("separable_same_even", (5, 7, 3),
         layers.SeparableConv2D(4, (2, 4), strides=2, padding="same", depth_multiplier=2, name="c")),
        ("transpose_same_even", (3, 5, 2),
         layers.Conv2DTranspose(3, 4, strides=2, padding="same", name="c")),
        ("transpose_same_odd", (3, 4, 2),
         layers.Conv2DTranspose(3, (3, 2), strides=(3, 2), padding="same", name="c")),
        ("transpose_valid", (4, 3, 2), layers.Conv2DTranspose(3, (2, 3), strides=(3, 1), name="c")),
        ("max_pooling2d_same_even", (5, 7, 2), layers.MaxPooling2D((4, 2), strides=3, padding="same")),
        ("max_pooling2d_odd", (5, 7, 2), layers.MaxPooling2D(2)),
        ("average_pooling2d_same_even", (5, 7, 2),
         layers.AveragePooling2D((2, 4), strides=(3, 1), padding="same")),
        ("average_pooling2d_odd", (7, 5, 2), layers.AveragePooling2D((3, 2))),
        ("max_pooling3d", (5, 4, 7, 2), layers.MaxPooling3D()),
        ("max_pooling3d_same_even", (5, 4, 7, 2),
         layers.MaxPooling3D((4, 3, 2), strides=(2, 1, 3), padding="same")),
        ("average_pooling3d", (5, 4, 7, 2), layers.AveragePooling3D((2, 3, 2), strides=1)),
        ("average_pooling3d_same_even", (5, 4, 7, 2),
         layers.AveragePooling3D((4, 3, 2), strides=(2, 1, 3), padding="same")),
        ("max_pooling1d_odd", (7, 3), layers.MaxPooling1D(2)),
        ("average_pooling1d_valid", (8, 3), layers.AveragePooling1D(3, strides=2)),
        ("up_sampling2d_nearest", (3, 5, 2), layers.UpSampling2D((2, 3))),
        ("zero_padding2d", (3, 5, 2), layers.ZeroPadding2D(((1, 0), (2, 3)))),
        ("flatten", (3, 4, 2), layers.Flatten()),
        ("reshape", (3, 4), layers.Reshape((2, -1))),
        ("batch_norm", (5, 4), layers.BatchNormalization(name="n")),
        ("batch_norm_plain", (3, 4, 2),
         layers.BatchNormalization(center=False, scale=False, epsilon=1e-2, name="n")),
        ("layer_norm_plain", (4, 5), layers.LayerNormalization(center=False, scale=False, epsilon=1e-5)),
        ("dropout", (4,), layers.Dropout(0.5)),
        ("spatial_dropout", (3, 4), layers.SpatialDropout1D(0.5)),
        ("gaussian_noise", (4,), layers.GaussianNoise(0.5)),
        ("gaussian_dropout", (4,), layers.GaussianDropout(0.5)),
        ("alpha_dropout", (4,), layers.AlphaDropout(0.5)),
        ("activity", (4,), layers.ActivityRegularization(l2=0.5)),
        ("permute", (2, 3, 4), layers.Permute((3, 1, 2))),
        ("repeat_vector", (4,), layers.RepeatVector(3)),
        ("identity", (4,), layers.Identity()),
        ("rescaling", (4,), layers.Rescaling(0.5, -1.0)),
        ("normalization", (2, 3),
         layers.Normalization(mean=[0.5, -1.0, 2.0], variance=[1.0, 4.0, 0.25])),
        ("normalization_all", (2, 3), layers.Normalization(axis=None, mean=0.5, variance=2.0)),
        ("normalization_invert", (2, 3),
         layers.Normalization(axis=1, mean=[0.5, -1.0], variance=[1.0, 4.0], invert=True)),
    ]
    for name, shape, layer in one:
        yield name, [shape], 1, chain(layer)
    yield "attention", [(5, 6)], 1, attended()
    yield "attention_causal", [(5, 6)], 1, attended(use_causal_mask=True)
    yield "concatenate", [(3, 4), (3, 2)], 1, merge(layers.Concatenate())
    yield "concatenate_positions", [(3, 4), (2, 4)], 1, merge(layers.Concatenate(axis=1))
    yield "threshold", [(17,)], 1, lambda x: keras.activations.threshold(x, 0.5, -0.25)
    yield "masking", [(6, 2)], -30, chain(layers.Masking(0.0))
    yield "masked_mean", [(6, 3)], -30, chain(layers.Masking(0.0), layers.Dense(4, name="d"),
                                              layers.GlobalAveragePooling1D())
    yield "masked_attention", [(5, 4)], -30, masked_attention
    yield "grouped_query", [(5, 6)], 1, grouped(False)
    yield "grouped_query_causal", [(5, 6)], 1, grouped(True)
    yield "add_broadcast", [(4, 1, 3), (4, 2, 1)], 1, merge(layers.Add())
    yield "subtract", [(4,), (4,)], 1, merge(layers.Subtract())
    yield "multiply", [(4, 3), (4, 3), (4, 1)], 1, merge(layers.Multiply())
    yield "average", [(4,), (4,), (4,)], 1, merge(layers.Average())
    yield "maximum", [(4,), (4,), (4,)], 1, merge(layers.Maximum())
    yield "minimum", [(4,), (4,)], 1, merge(layers.Minimum())
    yield "dot", [(4,), (4,)], 1, merge(layers.Dot(1))
    yield "dot_axes", [(3, 4), (4, 5)], 1, merge(layers.Dot((2, 1)))
    yield "dot_normalized", [(3, 4), (5, 4)], 1, merge(layers.Dot(-1, normalize=True))
    yield "dot_mixed", [(3, 4), (3,)], 1, merge(layers.Dot(1))


def input_values(index, shape, exponent):
    """exponent -30: about half of the positions are 0, the others in [-2, 2)."""
    x = real(INPUT_SALT + index, (BATCH, *shape), 1 if exponent == -30 else exponent)
    if exponent == -30:
        x *= (hashes(LABEL_SALT, BATCH * shape[0]) % 2).reshape(BATCH, shape[0], 1)
        x[:, 0] = real(LABEL_SALT + 1, (BATCH, shape[1]), 1)
    return x


TRAINING = [
    ("batch_norm", [(5, 4)], 1, chain(layers.BatchNormalization(name="n"))),
    ("batch_norm_images", [(3, 5, 2)], 1,
     chain(layers.BatchNormalization(momentum=0.7, epsilon=1e-2, name="n"))),
    ("batch_norm_plain", [(4,)], 1, chain(layers.BatchNormalization(center=False, scale=False, name="n"))),
    ("layer_norm", [(3, 5)], 1, chain(layers.LayerNormalization(name="n"))),
    ("no_noise", [(4,)], 1, chain(layers.Dropout(0.0), layers.GaussianNoise(0.0), layers.AlphaDropout(0.0))),
]


def centre(path):
    return 1.0 if path.endswith(("gamma", "scale", "moving_variance")) else 0.0


def thinned(x):
    flat = np.asarray(x, np.float64).ravel()
    stride = max(1, flat.size // MOST_VALUES) | 1
    return {"size": flat.size, "stride": stride, "rms": float(np.sqrt(np.mean(flat**2))),
            "values": flat[::stride].tolist()}


def answer(name, shapes, exponent, build, training=False):
    inputs = [layers.Input(shape) for shape in shapes]
    model = keras.Model(inputs, build(*inputs))
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1) + centre(v.path))
    x = [input_values(i, shape, exponent) for i, shape in enumerate(shapes)]

    def run(weights, values):
        out, moved = model.stateless_call(weights, fixed, values, training=training)
        seed = real(SEED_SALT, out.shape, 0)
        return (out * seed).sum(), (out, moved)

    weights = [v.value for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]
    (_, (y, moved)), (dw, dx) = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)(weights, x)
    result = {"name": name, "paths": paths, "shape": list(y.shape[1:]), "y": thinned(y),
              "dx": [thinned(d) for d in dx]}
    if training:
        result["moved"] = {v.path: thinned(m) for v, m in zip(model.non_trainable_variables, moved)
                           if v.path in paths}
    result["dw"] = {v.path: thinned(d) for v, d in zip(model.trainable_variables, dw)}
    return result


def trained():
    """(name, layer in front of the head)"""
    from keras import constraints as c
    from keras import regularizers as r

    yield "l1", dict(kernel_regularizer=r.L1(0.02), bias_regularizer="l2")
    yield "l2", dict(kernel_regularizer=r.L2(0.05), activity_regularizer=r.L2(0.1))
    yield "l1l2", dict(kernel_regularizer=r.L1L2(0.01, 0.02))
    yield "orthogonal", dict(kernel_regularizer=r.OrthogonalRegularizer(0.5))
    yield "orthogonal_columns", dict(kernel_regularizer=r.OrthogonalRegularizer(0.5, "columns"))
    yield "max_norm", dict(kernel_constraint=c.MaxNorm(0.5), bias_constraint=c.NonNeg())
    yield "non_neg", dict(kernel_constraint=c.NonNeg())
    yield "unit_norm", dict(kernel_constraint=c.UnitNorm(axis=1))
    yield "min_max_norm", dict(kernel_constraint=c.MinMaxNorm(0.7, 0.8, rate=0.6, axis=0))


def train(name, options):
    keras.utils.clear_session()
    keras.config.set_floatx("float64")
    x = layers.Input((5,))
    model = keras.Model(x, layers.Dense(1, name="head")(layers.Dense(4, name="d", **options)(x)))
    paths = sorted(v.path for v in model.weights)
    for v in model.weights:
        v.assign(real(paths.index(v.path), v.shape, -1))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data, targets = real(INPUT_SALT, (4, 5), 0), real(LABEL_SALT, (4, 1), 0)
    losses = []
    for _ in range(5):
        losses.append(float(model.train_on_batch(data, targets)))
    return {"name": name, "paths": paths, "losses": losses,
            "evaluated": float(model.evaluate(data, targets, verbose=0)),
            "weights": {v.path: np.asarray(v.value).ravel().tolist() for v in model.weights}}


def main():
    result = {
        "made_by": "tests/golden/keras_layers2.py",
        "keras": keras.__version__,
        "jax": jax.__version__,
    }
    result["cases"] = [answer(*case) for case in cases()]
    result["training"] = [answer(*case, training=True) for case in TRAINING]
    result["trained"] = [train(*case) for case in trained()]
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

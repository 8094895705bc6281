"""Writes keras_ops.json: functions of keras.ops and Python's operators on tensors, and gradients.

    KERAS_BACKEND=tensorflow python keras_ops.py > keras_ops.json

Each case has its result on hashed inputs (counter_hash.py) in float64 and, where one is asked for,
the gradient of sum(result * w) with respect to x. Run with Keras 3.15.1 and TensorFlow on a CPU.
src/op/ops_test.cc has the same cases.
"""

import json

import numpy as np
import tensorflow as tf
from counter_hash import hashes, real
from keras import ops

X = real(1, (3, 4, 5), 1)
Y = real(2, (3, 4, 5), 1)
V = real(3, (5,), 1)
P = (real(4, (3, 4, 5), 0).astype(np.float32) + np.float32(1.5)).astype(np.float64)
B = real(5, (3, 5, 2), 1)
M = real(6, (5, 2), 1)
I = (hashes(7, 12) % np.uint32(5)).astype(np.int32).reshape(3, 4)
J = (hashes(8, 6) % np.uint32(4)).astype(np.int32)
K = (hashes(11, 6) % np.uint32(5)).astype(np.int32).reshape(3, 2)

# name: (function of x, the value of x, whether it has a gradient)
CASES = {
    "plus": (lambda x: x + V, X, True),
    "minus": (lambda x: 1.5 - x, X, True),
    "times": (lambda x: -x * Y * 2.0 + 3, X, True),
    "over": (lambda x: x / P / 3.0 + 1.0 / x, P, True),
    "comparisons": (
        lambda x: ops.cast(x < Y, "float64")
        + 2 * ops.cast(x >= V, "float64")
        + 4 * ops.cast(ops.logical_and(x > 0, ops.logical_not(x > 1)), "float64"),
        X, False),
    "power_3": (lambda x: ops.power(x, 3), X, True),
    "power_m2": (lambda x: ops.power(x, -2), P, True),
    "power_real": (lambda x: ops.power(x, 2.7), P, True),
    "power_tensor": (lambda x: ops.power(x, Y), P, True),
    "clip": (lambda x: ops.clip(x, -0.5, 1.0), X, True),
    "where": (lambda x: ops.where(x > 0, ops.log(ops.abs(x)), x * 2.0), X, True),
    "where_number": (lambda x: ops.where(x > V, x, -3.5), X, True),
    "maximum": (lambda x: ops.maximum(x, 0.25) + ops.minimum(x, Y), X, True),
    "abs_sqrt": (lambda x: ops.sqrt(ops.abs(x)) + ops.sign(x), X, True),
    "rsqrt": (lambda x: ops.rsqrt(x) + ops.reciprocal(x), P, True),
    "exp_log": (lambda x: ops.exp(x) + ops.expm1(x) + ops.log1p(x + 2.0) + ops.log(x + 2.5), X, True),
    "logs": (lambda x: ops.log2(x) + ops.log10(x), P, True),
    "sin_cos": (lambda x: ops.sin(3.0 * x) + 2.0 * ops.cos(5.0 * x), X, True),
    "round": (lambda x: ops.floor(x) + 10 * ops.ceil(x) + 100 * ops.round(x), X, False),
    "floor_divide": (lambda x: ops.floor_divide(x, 0.75) + ops.mod(x, 0.25), X, False),
    "squashing": (lambda x: ops.tanh(x) + ops.sigmoid(x) + ops.softplus(x) + ops.relu(x), X, True),
    "sum": (lambda x: ops.sum(x, axis=1), X, True),
    "sum_keep": (lambda x: ops.sum(x, axis=(0, -1), keepdims=True), X, True),
    "mean": (lambda x: ops.mean(x, axis=-1), X, True),
    "mean_all": (lambda x: ops.mean(x), X, True),
    "max": (lambda x: ops.max(x, axis=1) + ops.min(x, axis=1), X, True),
    "prod": (lambda x: ops.prod(x, axis=(1, 2)), P, True),
    "var": (lambda x: ops.var(x, axis=1) + ops.std(x, axis=1), X, True),
    "logsumexp": (lambda x: ops.logsumexp(x * 30.0, axis=-1), X, True),
    "norm": (lambda x: ops.norm(x, axis=-1), X, True),
    "cumsum": (lambda x: ops.cumsum(x, axis=1) + 2.0 * ops.cumsum(x, axis=0), X, True),
    "argmax": (lambda x: ops.cast(ops.argmax(x, axis=1) + 10 * ops.argmin(x, axis=1), "float64"), X, False),
    "argmax_all": (lambda x: ops.cast(ops.argmax(x), "float64"), X, False),
    "any_all": (
        lambda x: ops.cast(ops.any(x > 1.5, axis=1), "float64")
        + 2 * ops.cast(ops.all(x > -1.5, axis=1), "float64")
        + 4 * ops.cast(ops.count_nonzero(x > 0, axis=1), "float64"),
        X, False),
    "shapes": (
        lambda x: ops.reshape(ops.transpose(ops.expand_dims(x, 1), (0, 3, 1, 2)), (-1, 10)), X, True),
    "swap": (lambda x: ops.swapaxes(ops.moveaxis(x, 0, 2), 0, 1), X, True),
    "concatenate": (lambda x: ops.concatenate([x, Y, x * 2.0], axis=1), X, True),
    "stack": (lambda x: ops.stack([x, Y], axis=1) + ops.stack([Y, x], axis=1), X, True),
    "stack_last": (lambda x: ops.stack([x, Y], axis=-1), X, True),
    "unstack": (lambda x: ops.unstack(x, axis=1)[2] - ops.split(x, 2, axis=1)[1][:, 0], X, True),
    "slice": (lambda x: ops.slice(x, (0, 1, 2), (3, 2, 3)), X, True),
    "take": (lambda x: ops.take(x, J, axis=1), X, True),
    "take_0": (lambda x: ops.take(x, K % 3, axis=0), X, True),
    "take_along": (lambda x: ops.take_along_axis(x, I[..., None], axis=-1), X, True),
    "repeat": (lambda x: ops.repeat(x, 3, axis=1), X, True),
    "tile": (lambda x: ops.tile(x, (1, 2, 2)), X, True),
    "roll": (lambda x: ops.roll(x, 3, axis=1) + ops.roll(x, -1, axis=2), X, True),
    "pad": (lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 3)), constant_values=0.5), X, True),
    "matmul_2": (lambda x: ops.matmul(x, M), X, True),
    "matmul_3": (lambda x: ops.matmul(x, B), X, True),
    "matmul_1": (lambda x: ops.matmul(x, V), X, True),
    "matmul_4": (lambda x: ops.matmul(ops.expand_dims(x, 1), B), X, True),
    "softmax": (lambda x: ops.softmax(x, axis=1) + ops.log_softmax(x, axis=-1), X, True),
    "one_hot": (lambda x: ops.one_hot(I, 5, dtype="float64") * x, X, True),
    "flip": (lambda x: ops.flip(x, axis=1) + ops.flip(x, axis=(0, 2)) + ops.flip(x), X, True),
    "sort": (lambda x: ops.sort(x) + 2.0 * ops.sort(x, axis=1), X, True),
    "argsort": (lambda x: ops.cast(ops.argsort(x) + 10 * ops.argsort(x, axis=0), "float64"), X, False),
    "top_k": (lambda x: ops.top_k(x, 3)[0], X, True),
    "top_k_indices": (lambda x: ops.cast(ops.top_k(ops.round(x), 4)[1], "float64"), X, False),
    "linspace": (lambda x: x * ops.linspace(-1.0, 2.0, 5, dtype="float64"), X, True),
    "einsum": (lambda x: ops.einsum("abc,acd->adb", x, B), X, True),
    "einsum_sum": (lambda x: ops.einsum("abc,abc->b", x, Y), X, True),
    "einsum_one": (lambda x: ops.einsum("abc->ca", x), X, True),
    "einsum_dots": (lambda x: ops.einsum("...c,cd->d...", x, M), X, True),
    "einsum_batch": (lambda x: ops.einsum("...ij,...kj->...ik", x, Y), X, True),
    "einsum_three": (lambda x: ops.einsum("abc,cd,abd->ad", x, M, ops.matmul(Y, M)), X, True),
    "stop": (lambda x: tf.stop_gradient(x) * x, X, True),
}


def numbers(tensor):
    return [float(f"{value:.13g}") for value in np.ravel(tf.convert_to_tensor(tensor).numpy())]


def main():
    answers = {}
    for name, (function, value, has_gradient) in CASES.items():
        x = tf.constant(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * real(9, y.shape, 0))
        answer = {"shape": list(y.shape), "result": numbers(y)}
        if has_gradient:
            answer["gradient"] = numbers(tape.gradient(loss, x))
        answers[name] = answer
    print(json.dumps(answers, indent=0).replace(",\n", ","))


main()

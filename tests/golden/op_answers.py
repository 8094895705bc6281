#!/usr/bin/env python3
"""Answers for the samples of the op catalogue, computed without this engine: tests/golden/op_answers.txt.

The inputs come from `dump_samples` (tests/tools), the outputs from NumPy in float64; convolutions and
their gradients from JAX. The conformance test compares the float64 reference kernels with them, so the
formulas below are written from the definitions, not from the kernels. CI does not run this script.

Usage, after adding or changing an op or a sample (needs numpy and jax):
    build/tests-tools/dump_samples | tests/golden/op_answers.py > tests/golden/op_answers.txt

The format is described in tests/op_answers.h.
"""

import json
import math
import struct
import sys

import numpy as np

MOST_VALUES = 128  # stored for an output; larger ones are thinned out


def step_params(raw):
    """struct StepParams of src/op/step_params.h."""
    step, seed, rate, update, rows, offset, _, band = struct.unpack("<qQdqqqqq", bytes(raw[:64].tolist()))
    return {"step": step, "update": update or step, "seed": seed, "learning_rate": rate, "rows": rows, "row_offset": offset,
            "band": band}


def progression(attrs):
    y = (attrs["start"] + np.arange(attrs["count"]) * attrs["step"]) * attrs["factor"]
    y[-1:] = attrs["end"]
    return y != 0 if attrs["dtype"] == "bool" else y if attrs["dtype"].startswith("float") else np.floor(y)


# ---- sequences of labels


def ctc(x, labels, np=np):
    """-log of the sum over all spellings, by probabilities: blanks (0) around each label."""
    rows = []
    for logits, row in zip(x, labels):
        spelled = [0]
        for label in row:
            if label != 0:
                spelled += [int(label), 0]
        p = np.exp(logits)
        p = p / p.sum(-1, keepdims=True)
        reach = [1.0, 1.0][:len(spelled)] + [0.0] * (len(spelled) - 2)
        for t in range(len(logits)):
            if t > 0:
                reach = [now[s] + (now[s - 1] if s > 0 else 0)
                         + (now[s - 2] if s > 1 and spelled[s] not in (0, spelled[s - 2]) else 0)
                         for s in range(len(spelled))]
            now = [reach[s] * p[t, spelled[s]] for s in range(len(spelled))]
        rows.append(-np.log(sum(now[-2:])))
    return np.array(rows)


def ctc_gradient(attrs, x, labels, dloss):
    import jax

    jax.config.update("jax_enable_x64", True)
    if x.shape[0] == 0:
        return np.zeros(x.shape)
    return np.asarray(jax.grad(lambda x: (ctc(x, labels, jax.numpy) * dloss).sum())(jax.numpy.asarray(x)))


# ---- convolution and pooling


def padding_of(attrs, axis, size, kernel, stride, dilation=1):
    """Padding before and after one axis (0 rows, 1 columns), as TensorFlow has it."""
    if attrs.get("padding", "valid") == "valid":
        return 0, 0
    if attrs["padding"] == "explicit":
        return tuple(attrs["pads"][2 * axis:2 * axis + 2])
    out = -(-size // stride)
    total = max(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def jax_convolution(attrs):
    import jax

    jax.config.update("jax_enable_x64", True)

    padding = attrs.get("padding", "valid").upper()
    if padding == "EXPLICIT":
        top, bottom, left, right = attrs["pads"]
        padding = ((top, bottom), (left, right))

    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, window_strides=attrs.get("strides", [1, 1]),
            padding=padding,
            rhs_dilation=attrs.get("dilations", [1, 1]),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=attrs.get("groups", 1),
            precision=jax.lax.Precision.HIGHEST)

    return jax, convolve


def conv2d(attrs, x, w, bias=0.0):
    _, convolve = jax_convolution(attrs)
    y = np.asarray(convolve(x, w)) + bias
    return np.maximum(y, 0) if attrs.get("activation") == "relu" else y


def conv2d_input_gradient(attrs, w, dy):
    jax, convolve = jax_convolution(attrs)
    _, pull = jax.vjp(lambda x: convolve(x, w), np.zeros(attrs["input_shape"]))
    return np.asarray(pull(dy)[0])


def conv2d_weight_gradient(attrs, x, dy):
    jax, convolve = jax_convolution(attrs)
    _, pull = jax.vjp(lambda w: convolve(x, w), np.zeros(attrs["kernel_shape"]))
    dw = np.asarray(pull(dy)[0])
    return (dw, dy.sum((0, 1, 2))) if attrs.get("with_bias") else dw


def windows(attrs, shape):
    """(oh, ow, first row, first column) of each pooling window; firsts may be negative."""
    (ph, pw), (sh, sw) = attrs["pool_size"], attrs["strides"]
    top, below = padding_of(attrs, 0, shape[1], ph, sh)
    left, right = padding_of(attrs, 1, shape[2], pw, sw)
    for oh in range((shape[1] + top + below - ph) // sh + 1):
        for ow in range((shape[2] + left + right - pw) // sw + 1):
            yield oh, ow, oh * sh - top, ow * sw - left


def max_pool(attrs, x):
    ph, pw = attrs["pool_size"]
    places = list(windows(attrs, x.shape))
    shape = (x.shape[0], places[-1][0] + 1, places[-1][1] + 1, x.shape[3])
    y, index = np.empty(shape), np.empty(shape, np.int64)
    for oh, ow, top, left in places:
        window = np.full((x.shape[0], ph, pw, x.shape[3]), -np.inf)
        for r in range(max(top, 0), min(top + ph, x.shape[1])):
            for c in range(max(left, 0), min(left + pw, x.shape[2])):
                window[:, r - top, c - left] = x[:, r, c]
        flat = window.reshape(x.shape[0], ph * pw, x.shape[3])
        y[:, oh, ow], index[:, oh, ow] = flat.max(1), flat.argmax(1)
    return y, index


def max_pool_gradient(attrs, index, dy):
    pw = attrs["pool_size"][1]
    dx = np.zeros(attrs["input_shape"])
    for oh, ow, top, left in windows(attrs, dx.shape):
        for b in range(dx.shape[0]):
            for ch in range(dx.shape[3]):
                r = top + int(index[b, oh, ow, ch]) // pw
                c = left + int(index[b, oh, ow, ch]) % pw
                if 0 <= r < dx.shape[1] and 0 <= c < dx.shape[2]:  # else the maximum was padding
                    dx[b, r, c, ch] += dy[b, oh, ow, ch]
    return dx


def avg_pool(attrs, x):
    ph, pw = attrs["pool_size"]
    places = list(windows(attrs, x.shape))
    y = np.empty((x.shape[0], places[-1][0] + 1, places[-1][1] + 1, x.shape[3]))
    for oh, ow, top, left in places:
        y[:, oh, ow] = x[:, max(top, 0):top + ph, max(left, 0):left + pw].mean((1, 2))
    return y


def avg_pool_gradient(attrs, dy):
    ph, pw = attrs["pool_size"]
    dx = np.zeros(attrs["input_shape"])
    for oh, ow, top, left in windows(attrs, dx.shape):
        part = dx[:, max(top, 0):top + ph, max(left, 0):left + pw]
        part += dy[:, oh:oh + 1, ow:ow + 1] / (part.shape[1] * part.shape[2])
    return dx


def pad_widths(attrs):
    top, bottom, left, right = attrs["pads"]
    return ((0, 0), (top, bottom), (left, right), (0, 0))


def crop(attrs, x):
    top, bottom, left, right = attrs["pads"]
    return x[:, top:x.shape[1] - bottom, left:x.shape[2] - right]


def jax_upsample(attrs):
    import jax

    jax.config.update("jax_enable_x64", True)

    def resize(x):
        shape = (x.shape[0], x.shape[1] * attrs["size"][0], x.shape[2] * attrs["size"][1], x.shape[3])
        return jax.image.resize(x, shape, attrs["interpolation"], antialias=False)

    return jax, resize


def upsample(attrs, x):
    if x.size == 0:
        return np.zeros((x.shape[0], x.shape[1] * attrs["size"][0], x.shape[2] * attrs["size"][1], x.shape[3]))
    return np.asarray(jax_upsample(attrs)[1](x))


def upsample_gradient(attrs, dy):
    small = (dy.shape[0], dy.shape[1] // attrs["size"][0], dy.shape[2] // attrs["size"][1], dy.shape[3])
    if dy.size == 0:
        return np.zeros(small)
    jax, resize = jax_upsample(attrs)
    return np.asarray(jax.vjp(resize, np.zeros(small))[1](dy)[0])


def pool_attrs(attrs):
    return {"pool_size": attrs["pool_size"], "strides": attrs["pool_strides"],
            "padding": attrs.get("pool_padding", "valid")}


def conv2d_pool(attrs, x, w, bias=0.0):
    relu = attrs.get("activation") == "relu"
    y, index = max_pool(pool_attrs(attrs), conv2d(dict(attrs, activation="none"), x, w, bias))
    if attrs.get("masked"):
        index = np.where(y > 0, index, 255)
    return (np.maximum(y, 0) if relu else y), index


def conv2d_pool_weight_gradient(attrs, x, index, dy):
    image = conv2d(attrs, x, np.zeros(attrs["kernel_shape"])).shape
    return conv2d_weight_gradient(
        attrs, x, max_pool_gradient(dict(pool_attrs(attrs), input_shape=image), index, dy))


# ---- softmax, losses, metrics


def softmax(x):
    if x.size == 0:
        return x
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(x, targets):
    p = softmax(x)
    return -(targets * np.log(p)).sum(-1), p


def argmax(x):
    return x.argmax(-1) if x.size else np.zeros(x.shape[:-1], np.int64)


def one_hot(labels, depth):
    return (labels.astype(np.int64)[..., None] == np.arange(depth)).astype(np.float64)


def cross_entropy_gradient(p, targets, dloss):
    return (p * targets.sum(-1, keepdims=True) - targets) * dloss[..., None]


def linear_cross_entropy(attrs, h, w, labels, *rest):
    rest = list(rest)
    bias = rest.pop(0) if attrs.get("bias") else None
    kernel = w.T if attrs.get("transpose_b") else w
    x = h @ kernel + (0 if bias is None else bias)
    targets = one_hot(labels, x.shape[-1])
    loss, p = cross_entropy(x, targets)
    out = [loss]
    if attrs.get("gradients"):
        dlogits = (p - targets) * rest.pop(0)[..., None]
        flat, rows = dlogits.reshape(-1, x.shape[-1]), h.reshape(-1, h.shape[-1])
        out += [dlogits @ kernel.T, flat.T @ rows if attrs.get("transpose_b") else rows.T @ flat]
        out += [] if bias is None else [flat.sum(0)]
    return tuple(out + [argmax(x) == labels])


def linear_cross_entropy_accumulate(attrs, total, *operands):
    out = list(linear_cross_entropy(attrs, *operands))
    out[2] = total + out[2]
    return tuple(out)


# ---- transformers


def split_heads(attrs, operands):
    """q, k and v as (batch, heads, steps, size)."""
    q, k, v = np.split(operands[0], 3, -1) if attrs.get("packed") else operands
    heads = attrs["heads"]

    def split(x):
        return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)

    return split(q), split(k), split(v)


def join_heads(x):
    x = x.transpose(0, 2, 1, 3)
    return x.reshape(x.shape[0], x.shape[1], x.shape[2] * x.shape[3])


def attention_scores(attrs, q, k):
    scale = attrs.get("scale") or 1 / np.sqrt(q.shape[-1])
    scores = scale * q @ k.swapaxes(-1, -2)
    if attrs.get("causal"):
        scores = np.where(np.tri(*scores.shape[-2:]), scores, -np.inf)
    return scale, scores


def attention(attrs, *operands):
    q, k, v = split_heads(attrs, operands)
    _, scores = attention_scores(attrs, q, k)
    lse = np.log(np.exp(scores).sum(-1))
    return join_heads(softmax(scores) @ v), lse


def attention_gradient(attrs, *operands):
    count = 1 if attrs.get("packed") else 3
    q, k, v = split_heads(attrs, operands[:count])
    out, lse, dout = operands[count:count + 3]
    dlse = operands[count + 3] if len(operands) > count + 3 else 0 * lse
    out, _, _ = split_heads({"heads": attrs["heads"]}, (out, out, out))
    dout, _, _ = split_heads({"heads": attrs["heads"]}, (dout, dout, dout))
    scale, scores = attention_scores(attrs, q, k)
    p = np.exp(scores - lse[..., None])
    ds = scale * p * (dout @ v.swapaxes(-1, -2) - (out * dout).sum(-1, keepdims=True) + dlse[..., None])
    grads = [join_heads(x) for x in (ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dout)]
    return np.concatenate(grads, -1) if count == 1 else tuple(grads)


def layer_norm(attrs, x, gamma, beta):
    mean = x.mean(-1)
    rstd = 1 / np.sqrt(x.var(-1) + attrs["epsilon"])
    return (x - mean[..., None]) * rstd[..., None] * gamma + beta, mean, rstd


def layer_norm_gradient(attrs, x, gamma, mean, rstd, dy):
    n, g = (x - mean[..., None]) * rstd[..., None], dy * gamma
    return rstd[..., None] * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))


def layer_norm_parameter_gradient(attrs, x, mean, rstd, dy):
    over = tuple(range(x.ndim - 1))
    return (dy * (x - mean[..., None]) * rstd[..., None]).sum(over), dy.sum(over)


def grouped(x, groups):
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), groups, x.shape[-1] // groups)


def group_norm(attrs, x, gamma, beta):
    rows = grouped(x, attrs["groups"])
    mean, variance = rows.mean((1, 3)), rows.var((1, 3))
    rstd = 1 / np.sqrt(variance + attrs["epsilon"])
    y = (rows - mean[:, None, :, None]) * rstd[:, None, :, None]
    return y.reshape(x.shape) * gamma + beta, mean, rstd


def group_norm_sums(attrs, x, mean, rstd, dy):
    n = (grouped(x, mean.shape[1]) - mean[:, None, :, None]) * rstd[:, None, :, None]
    over, shape = grouped(dy, mean.shape[1]), (x.shape[0], x.shape[-1])
    return (over * n).sum(1).reshape(shape), over.sum(1).reshape(shape)


def group_norm_gradient(attrs, x, gamma, mean, rstd, dy, of_normal, of_dy):
    groups = mean.shape[1]
    rows, g = grouped(x, groups), grouped(dy * gamma, groups)
    moment = lambda m: m[:, None, :, None]
    count = rows.shape[1] * rows.shape[3]
    average = lambda sums: moment((sums * gamma).reshape(len(x), groups, -1).sum(2) / count) if len(x) else 0
    n = (rows - moment(mean)) * moment(rstd)
    return (moment(rstd) * (g - average(of_dy) - n * average(of_normal))).reshape(x.shape)


def layer_norm_gradients(attrs, x, gamma, mean, rstd, dy, added=0.0):
    dx = layer_norm_gradient(attrs, x, gamma, mean, rstd, dy) + added
    total = (dx.sum(tuple(range(dx.ndim - 1))),) if attrs.get("sum") else ()
    return dx, *layer_norm_parameter_gradient(attrs, x, mean, rstd, dy), *total


def layer_norm_gradients_accumulate(attrs, dgamma, dbeta, total, *operands):
    dx, *terms = layer_norm_gradients(attrs, *operands)
    return dx, *(a + b for a, b in zip((dgamma, dbeta, total), terms))


def channel_axes(x):
    return tuple(range(x.ndim - 1))


def batch_norm(attrs, x, gamma, beta):
    mean, variance = x.mean(channel_axes(x)), x.var(channel_axes(x))
    return batch_norm_apply(attrs, x, mean, variance, gamma, beta), mean, variance


def batch_norm_apply(attrs, x, mean, variance, gamma, beta, added=0.0):
    y = (x - mean) / np.sqrt(variance + attrs["epsilon"]) * gamma + beta + added
    return np.clip(y, 0, attrs.get("most")) if attrs.get("activation") == "relu" else y


def let_through(attrs, y, dy):
    return np.where((y > 0) & (y < attrs.get("most", np.inf)), dy, 0)


def batch_norm_gradient(attrs, x, mean, variance, gamma, dy):
    r, over = 1 / np.sqrt(variance + attrs["epsilon"]), channel_axes(x)
    n = (x - mean) * r
    dx = gamma * r * (dy - dy.mean(over) - n * (dy * n).mean(over))
    return dx, (dy * n).sum(over), dy.sum(over)


def batch_norm_relu_gradient(attrs, x, mean, variance, gamma, dy, beta):
    y = batch_norm_apply(attrs, x, mean, variance, gamma, beta)
    return batch_norm_gradient(attrs, x, mean, variance, gamma, let_through(attrs, y, dy))


def batch_norm_add_relu_gradient(attrs, x, mean, variance, gamma, dy, y):
    masked = let_through(attrs, y, dy)
    return batch_norm_gradient(attrs, x, mean, variance, gamma, masked) + (masked,)


def moving_statistics(attrs, *operands):
    m = attrs["momentum"]
    return tuple(a * m + b * (1 - m) for a, b in zip(operands[:2], operands[2:]))


def gelu(attrs, x):
    if attrs["approximate"]:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2)))


def gelu_gradient(attrs, x, dy):
    if attrs["approximate"]:
        t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
        du = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du)
    below = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2)))
    return dy * (below + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi))


# ---- updates, by Keras's formulas


def sgd_momentum(attrs, w, velocity, g, params):
    rate, momentum = step_params(params)["learning_rate"], attrs.get("momentum", 0.9)
    velocity = momentum * velocity - rate * g
    return w + (momentum * velocity - rate * g if attrs.get("nesterov") else velocity), velocity


def sparsemax(attrs, x):
    ordered = -np.sort(-x, axis=-1)
    sums = np.cumsum(ordered, axis=-1) - 1
    ranks = np.arange(1, x.shape[-1] + 1)
    count = np.sum(ordered - sums / ranks > 0, axis=-1, keepdims=True)
    return np.maximum(x - np.take_along_axis(sums, np.maximum(count, 1) - 1, -1) / count, 0)


def constrain(attrs, w):
    if attrs["kind"] == "non_neg":
        return np.maximum(w, 0)
    norms = np.sqrt(np.sum(np.square(w), axis=tuple(attrs["axes"]), keepdims=True))
    rate = attrs["rate"]
    desired = rate * np.clip(norms, attrs["least"], attrs["most"]) + (1 - rate) * norms
    return w * (desired / (1e-7 + norms))


def adam(attrs, w, m, v, g, params):
    p = step_params(params)
    b1, b2 = attrs.get("beta_1", 0.9), attrs.get("beta_2", 0.999)
    alpha = p["learning_rate"] * np.sqrt(1 - b2 ** p["step"]) / (1 - b1 ** p["step"])
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    w = w - w * attrs.get("weight_decay", 0.0) * p["learning_rate"]
    return w - alpha * m / (np.sqrt(v) + attrs.get("epsilon", 1e-7)), m, v


def own_rows(attrs, x, params):
    if "starts" not in attrs:
        return x
    band, out = step_params(params)["band"], np.zeros_like(x)
    first, last = (attrs["own"][band + i] - attrs["starts"][band] for i in (0, 1))
    out[:, first:last] = x[:, first:last]
    return out


def place_rows(attrs, whole, part, params):
    p, out = step_params(params), whole.copy()
    first, last, start = (*attrs["own"][p["band"] : p["band"] + 2], attrs["starts"][p["band"]])
    out[p["row_offset"], first:last] = part[0, first - start : last - start]
    return out


# ---- dropout


def philox(counter, key):
    """Philox 4x32-10 on Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def halves(x):
    return [x & 0xFFFFFFFF, (x >> 32) & 0xFFFFFFFF]


def dropout(attrs, x, params):
    p, rate = step_params(params), attrs["rate"]
    key = philox(halves(attrs["stream"]) + [0, 0], halves(p["seed"]))[:2]
    base = p["row_offset"] * (x.size // x.shape[0]) if x.ndim and x.size else 0
    y = np.zeros(x.size)
    for i in range(x.size):
        word = philox(halves((base + i) // 4) + halves(p["step"]), key)[(base + i) % 4]
        if word / 2**32 >= rate:
            y[i] = x.flat[i] / (1 - rate)
    return y.reshape(x.shape)


def words_of(attrs, p, block):
    key = philox(halves(attrs["stream"]) + [0, 0], halves(p["seed"]))[:2]
    return [(w + 0.5) / 2**32 for w in philox(halves(block) + halves(p["step"]), key)]


def random(attrs, params):
    p, shape = step_params(params), attrs["shape"]
    count = int(np.prod(shape))
    base = p["row_offset"] * (count // shape[0]) if attrs.get("rows") and len(shape) and count else 0
    y = np.zeros(count)
    for i in range(count):
        block, lane = divmod(base + i, 4)
        u = words_of(attrs, p, block)
        if attrs["distribution"] == "uniform":
            y[i] = attrs["a"] + (attrs["b"] - attrs["a"]) * u[lane]
        else:
            pair = u[lane // 2 * 2:lane // 2 * 2 + 2]
            turn = (np.cos, np.sin)[lane % 2](2 * np.pi * pair[1])
            y[i] = attrs["a"] + attrs["b"] * np.sqrt(-2 * np.log(pair[0])) * turn
    return y.reshape(shape)


FILTERS = {"bilinear": lambda x: np.maximum(1 - x, 0),
           "bicubic": lambda x: np.where(x < 1, 1.5 * x**3 - 2.5 * x**2 + 1,
                                         np.where(x < 2, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2, 0)),
           "lanczos3": lambda x: np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0),
           "lanczos5": lambda x: np.where(x < 5, np.sinc(x) * np.sinc(x / 5), 0)}


def resize(attrs, x):
    """Between the centres of pixels; the edge goes on for ever. Wider filters leave out what is beyond it."""
    for axis, size in zip((1, 2), attrs["size"]):
        at = (np.arange(size) + 0.5) * x.shape[axis] / size - 0.5
        if attrs.get("antialias") or attrs["interpolation"] not in ("nearest", "bilinear"):
            wide = max(x.shape[axis] / size, 1) if attrs.get("antialias") else 1
            shares = FILTERS[attrs["interpolation"]](np.abs(at[:, None] - np.arange(x.shape[axis])) / wide)
            shares /= shares.sum(1, keepdims=True)
            x = np.moveaxis(np.tensordot(shares, x, (1, axis)), 0, axis)
            continue
        if attrs["interpolation"] == "nearest":
            x = np.take(x, np.floor(at + 0.5 + 1e-9).astype(int), axis)
            continue
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        ends = [np.take(x, np.clip(low + i, 0, x.shape[axis] - 1), axis) for i in (0, 1)]
        x = ends[0] * (1 - share) + ends[1] * share
    return x


def transposed(linear, attrs, dy, shape):
    """The gradient of a linear map of images, column by column."""
    image = shape[1:]
    dx = np.zeros(shape)
    for i in range(int(np.prod(image))):
        one = np.zeros(image).ravel()
        one[i] = 1
        made = linear(np.broadcast_to(one.reshape(image), shape))
        dx.reshape(shape[0], int(np.prod(image)))[:, i] = (made * dy).sum((1, 2, 3))
    return dx


def resize_gradient(attrs, dy):
    back = dict(attrs, size=dy.shape[1:3])
    return transposed(lambda x: resize(back, x), attrs, dy,
                      (dy.shape[0], *attrs["size"], dy.shape[3]))


def affine(attrs, p, sample):
    """Maps (x, y) of the result to (x, y) of the image, as Keras's layers do."""
    height, width = attrs["from"]
    u = words_of(attrs, p, 0 if attrs["kind"] == "crop" else p["row_offset"] + sample)
    drawn = [attrs["low%d" % i] + (attrs["high%d" % i] - attrs["low%d" % i]) * u[i] for i in (0, 1)]
    cx, cy = (width - 1) / 2, (height - 1) / 2
    if attrs["kind"] == "flip":
        flipped = u[0] <= 0.5
        sides, upside = flipped and attrs["high0"] > 0, flipped and attrs["high1"] > 0
        return np.array([[-1 if sides else 1, 0, width - 1 if sides else 0],
                         [0, -1 if upside else 1, height - 1 if upside else 0]])
    if attrs["kind"] == "crop":
        return np.array([[1, 0, int(u[1] * (width - attrs["size"][1] + 1))],
                         [0, 1, int(u[0] * (height - attrs["size"][0] + 1))]])
    if attrs["kind"] == "rotation":
        c, s = np.cos(2 * np.pi * drawn[0]), np.sin(2 * np.pi * drawn[0])
        return np.array([[c, -s, cx - cx * c + cy * s], [s, c, cy - cx * s - cy * c]])
    if attrs["kind"] == "translation":
        return np.array([[1, 0, -drawn[1] * width], [0, 1, -drawn[0] * height]])
    zy = 1 + drawn[0]
    zx = zy if attrs["joint"] else 1 + drawn[1]
    return np.array([[zx, 0, cx * (1 - zx)], [0, zy, cy * (1 - zy)]])


def random_image(attrs, x, params):
    import jax
    from jax.scipy.ndimage import map_coordinates

    jax.config.update("jax_enable_x64", True)
    p, y = step_params(params), np.zeros((x.shape[0], *attrs["size"], x.shape[3]))
    exact = attrs["kind"] in ("flip", "crop") or attrs["interpolation"] == "nearest"
    rows, columns = np.indices(attrs["size"])
    for b in range(x.shape[0]):
        m = affine(attrs, p, b)
        at = [m[1, 0] * columns + m[1, 1] * rows + m[1, 2],
              m[0, 0] * columns + m[0, 1] * rows + m[0, 2]]
        for c in range(x.shape[3]):
            y[b, :, :, c] = map_coordinates(x[b, :, :, c], at, order=0 if exact else 1,
                                            mode=attrs["fill_mode"], cval=attrs["fill_value"])
    return y


def random_image_gradient(attrs, dy, params):
    plain = dict(attrs, fill_value=0.0)
    return transposed(lambda x: random_image(plain, x, params), attrs, dy,
                      (dy.shape[0], *attrs["from"], dy.shape[3]))


# ---- the rest


def packed_bits(x):
    return np.packbits(x.reshape(x.shape[0], row_size(x)), axis=1, bitorder="little")


def row_size(x):
    return int(np.prod(x.shape[1:]))


def relu_bits_gradient(attrs, bits, dy):
    ones = np.unpackbits(bits.astype(np.uint8), axis=1, count=row_size(dy), bitorder="little")
    return dy * ones.reshape(dy.shape)


def matmul(attrs, a, b, bias=0.0):
    if attrs.get("transpose_a"):  # leading dimensions count rows
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    c = (a.T if attrs.get("transpose_a") else a) @ (b.T if attrs.get("transpose_b") else b) + bias
    return np.maximum(c, 0) if attrs.get("activation") == "relu" else c


def batch_matmul(attrs, a, b):
    a = a.swapaxes(-1, -2) if attrs.get("transpose_a") else a
    return a @ (b.swapaxes(-1, -2) if attrs.get("transpose_b") else b)


def front(shape, x):
    """Shapes are stored with -1 for the operand's own dimension 0."""
    return [x.shape[0] if i == 0 and d == -1 else d for i, d in enumerate(shape)]


def reduction(function):
    return lambda a, x: function(x, axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 0)))


def cast(attrs, x):
    if attrs["dtype"] == "bool":
        return x != 0
    if attrs["dtype"] == "uint8":
        return np.clip(np.trunc(x), 0, 255)
    return np.trunc(x) if attrs["dtype"].startswith("int") else x


def power(attrs, x, y):
    """Of whole numbers to negative powers: 0, but for bases 1 and -1."""
    z = np.float_power(x, y)
    return np.trunc(z) if np.all(np.trunc(x) == x) and np.all(np.trunc(y) == y) else z


def mask(compare):
    return lambda a, x, y: compare(x, y)


def embedding_gradient(attrs, indices, dy, onto=0.0):
    table = np.zeros((attrs["depth"], dy.shape[-1])) + onto
    np.add.at(table, indices.astype(np.int64).ravel(), dy.reshape(indices.size, dy.shape[-1]))
    return table


def picked(attrs, indices, depth):
    """Indices into an axis of `depth` elements and a last one for those outside, by which x with that one is taken."""
    i = indices.astype(np.int64)
    i = np.where(i < 0, i + depth, i)
    return np.where((i < 0) | (i >= depth), depth, i)


def gather(attrs, x, indices):
    axis = attrs["axis"]
    i = picked(attrs, indices, x.shape[axis])
    outside = np.full(x.shape[:axis] + (1,) + x.shape[axis + 1:], 0.0 if attrs["zeros"] else np.nan)
    grown = np.concatenate([x, outside], axis)
    return np.take_along_axis(grown, i, axis) if attrs["each"] else np.take(grown, i, axis)


def gather_gradient(attrs, indices, dy):
    """Slopes of sum(dy * gather(x)), which is linear in x: one element of x after the other."""
    axis = attrs["axis"]
    gone = 1 if attrs["each"] else indices.ndim
    dx = np.zeros(dy.shape[:axis] + (attrs["depth"],) + dy.shape[axis + gone:])
    for v in range(attrs["depth"]):
        here = picked(attrs, indices, attrs["depth"]) == v
        if attrs["each"]:
            part = np.where(here, dy, 0).sum(axis)
        else:
            part = np.where(here.reshape(here.shape + (1,) * (dy.ndim - axis - gone)), dy, 0)
            part = part.sum(tuple(range(axis, axis + gone)))
        dx[(slice(None),) * axis + (v,)] = part
    return dx


def part(attrs, shape):
    """The place of a slice with these attributes among all elements."""
    end = attrs["begin"] + shape[attrs["axis"]]
    return (slice(None),) * attrs["axis"] + (slice(attrs["begin"], end),)


def slice_gradient(attrs, dy):
    shape = list(dy.shape)
    shape[attrs["axis"]] = attrs["size"]
    dx = np.zeros(shape)
    dx[part(attrs, dy.shape)] = dy
    return dx


CONSTANTS = {"scale": ["factor", "offset"], "leaky_relu": ["alpha"],
             "leaky_relu_gradient": ["alpha"], "gelu": ["approximate"],
             "gelu_gradient": ["approximate"], "dropout": ["rate", "stream", "rows"]}


def fused_pointwise(attrs, *operands, values=None):
    """Runs the program of src/op/tile_program.h one op after the other."""
    values = list(operands) if values is None else values
    for line in attrs["program"].split(";"):
        name, *words = line.split(" ")
        names = CONSTANTS.get(name, [])
        ids = [int(word) for word in words[:len(words) - len(names)]]
        numbers = [int(w) if n == "stream" else float(w) for n, w in zip(names, words[len(ids):])]
        args = [values[i] for i in ids]
        values.append(args[0] if name == "cast" else OPS[name](dict(zip(names, numbers)), *args))
    return values[-1]


def step_program(attrs, operands, params):
    """The values of a program of src/op/step_program.h that are its outputs."""
    p, scalars = step_params(params), []
    for line in filter(None, attrs.get("scalars", "").split(";")):
        name, *words = line.split(" ")
        if name == "constant":
            scalars.append(float(words[0]))
        elif name == "multiple":
            scalars.append(float(scalars[int(words[0])] % float(words[1]) == 0))
        else:
            scalars.append({
                "rate": lambda: p["learning_rate"],
                "step": lambda: float(p["update"]),
                "power": lambda a, b: a ** b,
                "sqrt": math.sqrt,
                "add": lambda a, b: a + b,
                "subtract": lambda a, b: a - b,
                "multiply": lambda a, b: a * b,
                "divide": lambda a, b: a / b,
                "minimum": min,
                "maximum": max,
                "greater": lambda a, b: float(a > b),
            }[name](*(scalars[int(word)] for word in words)))
    values = list(operands) + [np.float64(scalars[i]) for i in attrs.get("uses", [])]
    if attrs["program"]:
        fused_pointwise(attrs, *operands, values=values)
    return [values[i] for i in attrs["outputs"]]


def update(attrs, *operands):
    guarded = attrs.get("guarded", 0)
    tensors, params = operands[:-2] if guarded else operands[:-1], operands[-1]
    outputs = step_program(attrs, tensors, params)
    if guarded and not operands[-2] > 0:
        return tuple(tensors[:len(outputs)])
    return tuple(np.broadcast_to(x, tensors[0].shape) for x in outputs)


def sum_squares(attrs, *operands):
    shape = np.broadcast_shapes(*(x.shape for x in operands[:-1]))
    outputs = step_program(attrs, operands[:-1], operands[-1])
    return tuple(np.square(np.broadcast_to(x, shape)).sum() for x in outputs)


# ---- recurrent ops: a step at a time, all samples at once


SQUASHES = {
    "linear": (lambda x: x, lambda y: np.ones_like(y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
    "relu": (lambda x: np.maximum(x, 0), lambda y: 1.0 * (y > 0)),
    "hard_sigmoid": (lambda x: np.clip((x + 3) / 6, 0, 1), lambda y: ((y > 0) & (y < 1)) / 6),
}


class Recurrent:
    """Operands behind the first ones, by name, and the order of steps."""

    def __init__(self, attrs, sequence, names, more):
        self.batch, self.steps = sequence.shape[:2]
        more = iter(more)
        self.given = {n: next(more) for n in names if attrs.get(n.rstrip("0123456789"))}
        self.act, self.act_slope = SQUASHES[attrs.get("activation", "tanh")]
        self.gate, self.gate_slope = SQUASHES[attrs.get("recurrent_activation", "sigmoid")]
        self.attrs = attrs

    def get(self, name, shape):
        return np.array(self.given[name]) if name in self.given else np.zeros(shape)

    def input_at(self, s):
        return self.steps - 1 - s if self.attrs.get("backwards") else s

    def output_at(self, s):
        return s if self.attrs.get("flip") else self.input_at(s)

    def on(self, t):
        """(B, 1): whether the step counts."""
        mask = self.given.get("mask")
        return np.ones((self.batch, 1), bool) if mask is None else mask[:, t:t + 1] != 0

    def factors(self, gates, units):
        """(gates, B, H)"""
        dropped = self.given.get("dropped")
        return np.ones((gates, self.batch, units)) if dropped is None else np.moveaxis(dropped, 1, 0)


def lstm(attrs, z, u, *more):
    r = Recurrent(attrs, z, ("state0", "state1", "mask", "dropped"), more)
    units = u.shape[0]
    h, c = r.get("state0", (r.batch, units)), r.get("state1", (r.batch, units))
    hs, cs, gates = np.zeros((r.batch, r.steps, units)), np.zeros((r.batch, r.steps, units)), np.zeros_like(z)
    drop, weights = r.factors(4, units), np.split(u, 4, axis=1)
    for s in range(r.steps):
        t, on = r.input_at(s), r.on(r.input_at(s))
        i, f, g, o = (x + (h * m) @ w for x, m, w in zip(np.split(z[:, t], 4, axis=1), drop, weights))
        i, f, g, o = r.gate(i), r.gate(f), r.act(g), r.gate(o)
        c_new = f * c + i * g
        h, c = np.where(on, o * r.act(c_new), h), np.where(on, c_new, c)
        gates[:, t] = np.where(on, np.concatenate((i, f, g, o), 1), 0)
        hs[:, r.output_at(s)], cs[:, r.output_at(s)] = h, c
    return hs, gates, cs, h, c


def lstm_gradient(attrs, gates, c, u, *more):
    r = Recurrent(attrs, gates, ("state", "mask", "dropped", "dh", "dlast_h", "dlast_c", "dgates", "dc"), more)
    units = u.shape[0]
    state = (r.batch, units)
    dh, dc, dz = r.get("dlast_h", state), r.get("dlast_c", state), np.zeros_like(gates)
    dhs, dcs, dgates = r.get("dh", c.shape), r.get("dc", c.shape), r.get("dgates", gates.shape)
    drop, weights = r.factors(4, units), np.split(u, 4, axis=1)
    for s in reversed(range(r.steps)):
        t, on, at = r.input_at(s), r.on(r.input_at(s)), r.output_at(s)
        before = c[:, r.output_at(s - 1)] if s > 0 else r.get("state", state)
        i, f, g, o = np.split(gates[:, t], 4, axis=1)
        mi, mf, mg, mo = np.split(dgates[:, t], 4, axis=1)
        dh, dc = dh + dhs[:, at], dc + dcs[:, at]
        y = r.act(c[:, at])
        total = dc + dh * o * r.act_slope(y)
        parts = ((total * g + mi) * r.gate_slope(i), (total * before + mf) * r.gate_slope(f),
                 (total * i + mg) * r.act_slope(g), (dh * y + mo) * r.gate_slope(o))
        back = sum(m * (part @ w.T) for m, part, w in zip(drop, parts, weights))
        dz[:, t] = np.where(on, np.concatenate(parts, 1), 0)
        dh, dc = np.where(on, back, dh), np.where(on, total * f, dc)
    return dz, dh, dc


def gru(attrs, z, u, *more):
    r = Recurrent(attrs, z, ("bias", "state", "mask", "dropped"), more)
    units = u.shape[0]
    h, bias = r.get("state", (r.batch, units)), np.split(r.get("bias", (3 * units,)), 3)
    shape = (r.batch, r.steps, units)
    hs, inner, gates = np.zeros(shape), np.zeros(shape), np.zeros_like(z)
    drop, (wz, wr, wh) = r.factors(3, units), np.split(u, 3, axis=1)
    for s in range(r.steps):
        t, on = r.input_at(s), r.on(r.input_at(s))
        xz, xr, xh = np.split(z[:, t], 3, axis=1)
        update = r.gate(xz + (h * drop[0]) @ wz + bias[0])
        reset = r.gate(xr + (h * drop[1]) @ wr + bias[1])
        if attrs.get("reset_before"):
            inside = reset * h * drop[2]
            y = r.act(xh + inside @ wh)
        else:
            inside = (h * drop[2]) @ wh + bias[2]
            y = r.act(xh + reset * inside)
        h = np.where(on, update * h + (1 - update) * y, h)
        gates[:, t] = np.where(on, np.concatenate((update, reset, y), 1), 0)
        inner[:, t] = np.where(on, inside, 0)
        hs[:, r.output_at(s)] = h
    return hs, gates, inner, h


def gru_gradient(attrs, gates, inner, h, u, *more):
    r = Recurrent(attrs, gates, ("state", "mask", "dropped", "dh", "dlast_h", "dgates", "dinner"), more)
    units = u.shape[0]
    state = (r.batch, units)
    carry, dz, dn = r.get("dlast_h", state), np.zeros_like(gates), np.zeros_like(inner)
    dhs, dgates, dinner = r.get("dh", h.shape), r.get("dgates", gates.shape), r.get("dinner", h.shape)
    drop, (wz, wr, wh) = r.factors(3, units), np.split(u, 3, axis=1)
    for s in reversed(range(r.steps)):
        t, on = r.input_at(s), r.on(r.input_at(s))
        old = h[:, r.output_at(s - 1)] if s > 0 else r.get("state", state)
        update, reset, y = np.split(gates[:, t], 3, axis=1)
        mz, mr, mh = np.split(dgates[:, t], 3, axis=1)
        dh = carry + dhs[:, r.output_at(s)]
        dy = (dh * (1 - update) + mh) * r.act_slope(y)
        dupdate = (dh * (old - y) + mz) * r.gate_slope(update)
        if attrs.get("reset_before"):
            dinside = dy @ wh.T + dinner[:, t]
            dreset = (dinside * old * drop[2] + mr) * r.gate_slope(reset)
            last, back = dy, dinside * reset * drop[2]
        else:
            last = dy * reset + dinner[:, t]
            dreset = (dy * inner[:, t] + mr) * r.gate_slope(reset)
            back = drop[2] * (last @ wh.T)
        back = back + dh * update + drop[0] * (dupdate @ wz.T) + drop[1] * (dreset @ wr.T)
        dz[:, t] = np.where(on, np.concatenate((dupdate, dreset, dy), 1), 0)
        dn[:, t] = np.where(on, last, 0)
        carry = np.where(on, back, dh)
    return dz, dn, carry


def simple_rnn(attrs, z, u, *more):
    r = Recurrent(attrs, z, ("state", "mask", "dropped"), more)
    h, hs = r.get("state", (r.batch, u.shape[0])), np.zeros_like(z)
    for s in range(r.steps):
        t = r.input_at(s)
        h = np.where(r.on(t), r.act(z[:, t] + (h * r.factors(1, u.shape[0])[0]) @ u), h)
        hs[:, r.output_at(s)] = h
    return hs, h


def simple_rnn_gradient(attrs, h, u, *more):
    r = Recurrent(attrs, h, ("mask", "dropped", "dh", "dlast_h"), more)
    carry, dz, dhs = r.get("dlast_h", (r.batch, u.shape[0])), np.zeros_like(h), r.get("dh", h.shape)
    for s in reversed(range(r.steps)):
        t, at = r.input_at(s), r.output_at(s)
        dh = carry + dhs[:, at]
        part = np.where(r.on(t), dh * r.act_slope(h[:, at]), 0)
        dz[:, t] = part
        carry = np.where(r.on(t), (part @ u.T) * r.factors(1, u.shape[0])[0], dh)
    return dz, carry


def recurrent_weight_gradient(attrs, h, dz, *more):
    names = {"h0": "h0", "dropped": "dropped"}
    more = iter(more)
    given = {n: next(more) for n in names if attrs.get(n)}
    r = Recurrent(attrs, h, (), ())
    columns, units = attrs.get("columns") or dz.shape[2], h.shape[2]
    previous = np.zeros_like(h)  # in the order of dz
    for s in range(r.steps):
        previous[:, r.input_at(s)] = h[:, r.output_at(s - 1)] if s > 0 else given.get("h0", 0)
    if "dropped" not in given:
        return np.einsum("btk,btj->kj", previous, dz[:, :, :columns])
    blocks = dz[:, :, :columns].reshape(r.batch, r.steps, -1, units)
    return np.einsum("btk,bgk,btgj->kgj", previous, given["dropped"], blocks).reshape(units, -1)


OPS = {
    "conv2d_input_gradient_add": lambda attrs, w, dy, added: conv2d_input_gradient(attrs, w, dy) + added,
    "matmul": matmul,
    "matmul_add": lambda attrs, a, b, c, bias=0.0: matmul(attrs, a, b, bias) + c,
    "matmul_gelu_gradient": lambda attrs, a, b, x: gelu_gradient({"approximate": 1}, x, matmul(attrs, a, b)),
    "batch_matmul": batch_matmul,
    "attention": attention,
    "attention_gradient": attention_gradient,
    "layer_norm": layer_norm,
    "layer_norm_gradient": layer_norm_gradient,
    "layer_norm_parameter_gradient": layer_norm_parameter_gradient,
    "group_norm": group_norm,
    "group_norm_sums": group_norm_sums,
    "group_norm_gradient": group_norm_gradient,
    "layer_norm_gradients": layer_norm_gradients,
    "layer_norm_gradients_accumulate": layer_norm_gradients_accumulate,
    "batch_norm": batch_norm,
    "batch_moments": lambda a, x: (x.mean(channel_axes(x)), x.var(channel_axes(x))),
    "batch_norm_apply": batch_norm_apply,
    "batch_norm_add": batch_norm_apply,
    "batch_norm_gradient": batch_norm_gradient,
    "batch_norm_relu_gradient": batch_norm_relu_gradient,
    "batch_norm_add_relu_gradient": batch_norm_add_relu_gradient,
    "moving_statistics": moving_statistics,
    "gelu": gelu,
    "gelu_gradient": gelu_gradient,
    "leaky_relu": lambda a, x: np.where(x > 0, x, a["alpha"] * x),
    "leaky_relu_gradient": lambda a, y, dy: np.where(y > 0, dy, a["alpha"] * dy),
    "relu": lambda a, x: np.maximum(x, 0),
    "relu_gradient": lambda a, y, dy: np.where(y > 0, dy, 0),
    "relu_bits": lambda a, x: (np.maximum(x, 0), packed_bits(x > 0)),
    "relu_bits_gradient": relu_bits_gradient,
    "conv2d": conv2d,
    "conv2d_input_gradient": conv2d_input_gradient,
    "conv2d_weight_gradient": conv2d_weight_gradient,
    "clipped_relu": lambda a, x: np.clip(x, 0, a["most"]),
    "clipped_relu_gradient": lambda a, y, dy: np.where((y > 0) & (y < a["most"]), dy, 0),
    "pad": lambda a, x: np.pad(x, pad_widths(a)),
    "crop": crop,
    "avg_pool": avg_pool,
    "avg_pool_gradient": avg_pool_gradient,
    "upsample": upsample,
    "upsample_gradient": upsample_gradient,
    "resize": resize,
    "resize_gradient": resize_gradient,
    "random": random,
    "random_image": random_image,
    "random_image_gradient": random_image_gradient,
    "max_pool": max_pool,
    "max_pool_gradient": max_pool_gradient,
    "conv2d_pool": conv2d_pool,
    "conv2d_pool_weight_gradient": conv2d_pool_weight_gradient,
    "sparse_softmax_cross_entropy": lambda a, x, t: cross_entropy(x, one_hot(t, x.shape[-1])),
    "sparse_softmax_cross_entropy_gradient":
        lambda a, p, t, d: cross_entropy_gradient(p, one_hot(t, p.shape[-1]), d),
    "ctc_loss": lambda a, x, t: ctc(x, t),
    "ctc_loss_gradient": ctc_gradient,
    "softmax_cross_entropy": lambda a, x, t: cross_entropy(x, t),
    "softmax_cross_entropy_gradient": lambda a, p, t, d: cross_entropy_gradient(p, t, d),
    "linear_cross_entropy": linear_cross_entropy,
    "lstm": lstm,
    "lstm_gradient": lstm_gradient,
    "gru": gru,
    "gru_gradient": gru_gradient,
    "simple_rnn": simple_rnn,
    "simple_rnn_gradient": simple_rnn_gradient,
    "recurrent_weight_gradient": recurrent_weight_gradient,
    "sgd": lambda a, w, g, params: w - step_params(params)["learning_rate"] * g,
    "sgd_momentum": sgd_momentum,
    "adam": adam,
    "update": update,
    "sum_squares": sum_squares,
    "constrain": constrain,
    "add": lambda a, x, y: x + y,
    "accumulate": lambda a, total, term: total + term,
    "matmul_accumulate": lambda attrs, total, a, b: total + matmul(attrs, a, b),
    "embedding_gradient_accumulate": lambda a, total, indices, dy: embedding_gradient(a, indices, dy, total),
    "linear_cross_entropy_accumulate": linear_cross_entropy_accumulate,
    "assign": lambda a, variable, value: value,
    "own_rows": own_rows,
    "place_rows": place_rows,
    "subtract": lambda a, x, y: x - y,
    "multiply": lambda a, x, y: x * y,
    "divide": lambda a, x, y: x / y,
    "maximum": lambda a, x, y: np.maximum(x, y),
    "minimum": lambda a, x, y: np.minimum(x, y),
    "equal_mask": mask(np.equal),
    "greater_mask": mask(np.greater),
    "greater_equal_mask": mask(np.greater_equal),
    "floor_divide": lambda a, x, y: np.floor_divide(x, y),
    "mod": lambda a, x, y: np.mod(x, y),
    "power": power,
    "negative": lambda a, x: -x,
    "exp": lambda a, x: np.exp(x),
    "log": lambda a, x: np.log(x),
    "sqrt": lambda a, x: np.sqrt(x),
    "square": lambda a, x: x * x,
    "tanh": lambda a, x: np.tanh(x),
    "sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "abs": lambda a, x: np.abs(x),
    "sign": lambda a, x: np.sign(x),
    "softplus": lambda a, x: np.logaddexp(x, 0),
    "expm1": lambda a, x: np.expm1(x),
    "sin": lambda a, x: np.sin(x),
    "cos": lambda a, x: np.cos(x),
    "floor": lambda a, x: np.floor(x),
    "ceil": lambda a, x: np.ceil(x),
    "trunc": lambda a, x: np.trunc(x),
    "round": lambda a, x: np.round(x),
    "scale": lambda a, x: x * a["factor"] + a.get("offset", 0.0),
    "fused_pointwise": fused_pointwise,
    "reduce_sum": reduction(np.sum),
    "reduce_sum_accumulate": lambda a, total, x: total + reduction(np.sum)(a, x),
    "reduce_max": reduction(np.max),
    "reduce_min": reduction(np.min),
    "reduce_prod": reduction(np.prod),
    "reduce_norm": reduction(lambda x, **over: np.sqrt((x * x).sum(**over))),
    "cast": cast,
    "reshape": lambda a, x: x.reshape(front(a["shape"], x)),
    "transpose": lambda a, x: x.transpose(a["perm"]),
    "flip": lambda a, x: np.flip(x, tuple(a["axes"])),
    "argsort": lambda a, x: np.argsort(-x if a["descending"] else x, axis=-1, kind="stable")[..., :a["count"]],
    "one_hot": lambda a, labels: one_hot(labels, a["depth"]),
    "fill": lambda a: np.full(a["shape"], a["value"]),
    "progression": progression,
    "broadcast_to": lambda a, x: np.broadcast_to(x, front(a["shape"], x)),
    "softmax": lambda a, x: softmax(x),
    "log_softmax": lambda a, x: np.log(softmax(x)),
    "sparsemax": sparsemax,
    "softmax_gradient": lambda a, y, dy: y * (dy - (y * dy).sum(-1, keepdims=True)),
    "dropout": dropout,
    "dropout_gradient": dropout,
    "sparse_categorical_accuracy": lambda a, x, labels: argmax(x) == labels,
    "categorical_accuracy": lambda a, x, targets: argmax(x) == argmax(targets),
    "embedding": lambda a, table, indices: table[indices.astype(np.int64)],
    "embedding_gradient": embedding_gradient,
    "gather": gather,
    "gather_gradient": gather_gradient,
    "embedding_gradient_onto": lambda a, onto, i, dy: embedding_gradient(a, i, dy, onto),
    "concatenate": lambda a, *parts: np.concatenate(parts, a["axis"]),
    "slice": lambda a, x: np.take(x, np.arange(a["begin"], a["begin"] + a["size"]), a["axis"]),
    "slice_gradient": slice_gradient,
    "causal_mask": lambda a, x: np.tril(x),
}


def main():
    print("# Made by tests/golden/op_answers.py; the format is described in tests/op_answers.h.")
    missing = set()
    for line in sys.stdin:
        record = json.loads(line)
        if record["op"] not in OPS:
            missing.add(record["op"])
            continue
        inputs = [np.array(i["values"], np.float64).reshape(i["shape"]) for i in record["inputs"]]
        inputs = [x.astype(np.uint8) if i["dtype"] == "uint8" and x.size == 64 else x
                  for x, i in zip(inputs, record["inputs"])]
        outputs = OPS[record["op"]](record["attrs"], *inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        print(record["op"], record["sample"], record["hash"], len(outputs))
        for output in outputs:
            flat = np.asarray(output, np.float64).ravel()
            stride = max(1, flat.size // MOST_VALUES) | 1
            print(flat.size, stride, *("%.10g" % value for value in flat[::stride]))
    if missing:
        sys.exit("op_answers.py: no formula for " + ", ".join(sorted(missing)))


if __name__ == "__main__":
    main()

"""Writes torch_vit.json: ten training losses of a small vision transformer as PyTorch computes them.

Weights and data come from a counter hash scaled by powers of two, exact in float32, so that the test
(tests/end_to_end/vit_test.cc) computes the same bits. The model is written here from the paper's
definition with other sizes than ViT-B/16's; Adam is Keras's form, in which epsilon is added before
the correction of the bias. Run with PyTorch 2.15 on a CPU.
"""

import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

import counter_hash
from counter_hash import hashes

PATCH, LAYERS, WIDTH, HEADS, MLP = 16, 3, 48, 4, 192
HEIGHT, IMAGE_WIDTH, CHANNELS, CLASSES, BATCH = 32, 48, 3, 7, 4
STEPS, RATE, INPUT_SALT, LABEL_SALT = 10, 0.001, 1001, 1002


def weight_list():
    """name, shape, e and c: weights are uniform in [c - 2^e, c + 2^e)."""
    tokens = (HEIGHT // PATCH) * (IMAGE_WIDTH // PATCH)
    out = []

    def norm(name):
        out.append((name + "/gamma", (WIDTH,), -3, 1))
        out.append((name + "/beta", (WIDTH,), -4, 0))

    def dense(name, rows, columns, e):
        out.append((name + "/kernel", (rows, columns), e, 0))
        out.append((name + "/bias", (columns,), -6, 0))

    out.append(("patches/kernel", (PATCH, PATCH, CHANNELS, WIDTH), -4, 0))
    out.append(("patches/bias", (WIDTH,), -6, 0))
    out.append(("class_token/token", (1, WIDTH), -2, 0))
    out.append(("positions/embeddings", (1 + tokens, WIDTH), -2, 0))
    for i in range(LAYERS):
        block = f"block_{i}"
        norm(block + "/ln_1")
        dense(block + "/attn/qkv", WIDTH, 3 * WIDTH, -2)
        dense(block + "/attn/proj", WIDTH, WIDTH, -3)
        norm(block + "/ln_2")
        dense(block + "/mlp/fc", WIDTH, MLP, -2)
        dense(block + "/mlp/proj", MLP, WIDTH, -3)
    norm("ln_f")
    dense("head", WIDTH, CLASSES, -2)
    return out


def real(salt, shape, e, c=0):
    values = counter_hash.real(salt, shape, e).astype(np.float32) + np.float32(c)
    return torch.tensor(values, dtype=torch.float64)


def logits(w, x):
    def norm(name, h):
        return F.layer_norm(h, (WIDTH,), w[name + "/gamma"], w[name + "/beta"], 1e-6)

    def dense(name, h):
        return h @ w[name + "/kernel"] + w[name + "/bias"]

    kernel = w["patches/kernel"].permute(3, 2, 0, 1)
    h = F.conv2d(x.permute(0, 3, 1, 2), kernel, w["patches/bias"], stride=PATCH)
    h = h.flatten(2).transpose(1, 2)
    h = torch.cat([w["class_token/token"].expand(BATCH, 1, WIDTH), h], 1) + w["positions/embeddings"]
    t = h.shape[1]
    for i in range(LAYERS):
        block = f"block_{i}"
        q, k, v = dense(block + "/attn/qkv", norm(block + "/ln_1", h)).split(WIDTH, -1)
        q, k, v = (a.view(BATCH, t, HEADS, WIDTH // HEADS).transpose(1, 2) for a in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, t, WIDTH)
        h = h + dense(block + "/attn/proj", mixed)
        hidden = F.gelu(dense(block + "/mlp/fc", norm(block + "/ln_2", h)))
        h = h + dense(block + "/mlp/proj", hidden)
    return dense("head", norm("ln_f", h)[:, 0])


def losses():
    w = {name: real(salt, *rest) for salt, (name, *rest) in enumerate(weight_list())}
    for v in w.values():
        v.requires_grad_(True)
    x = real(INPUT_SALT, (BATCH, HEIGHT, IMAGE_WIDTH, CHANNELS), 0)
    y = torch.tensor((hashes(LABEL_SALT, BATCH) % np.uint32(CLASSES)).astype(np.int64))
    m = {name: torch.zeros_like(v) for name, v in w.items()}
    s = {name: torch.zeros_like(v) for name, v in w.items()}
    out = []
    for step in range(1, STEPS + 1):
        loss = F.cross_entropy(logits(w, x), y)
        out.append(loss.item())
        gradients = torch.autograd.grad(loss, list(w.values()))
        alpha = RATE * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        with torch.no_grad():
            for (name, v), g in zip(w.items(), gradients):
                m[name] = 0.9 * m[name] + 0.1 * g
                s[name] = 0.999 * s[name] + 0.001 * g * g
                v -= alpha * m[name] / (s[name].sqrt() + 1e-7)
    return out


def main():
    answer = {
        "made_by": "tests/golden/torch_vit.py",
        "torch": torch.__version__.split("+")[0],
        "config": [PATCH, LAYERS, WIDTH, HEADS, MLP],
        "input": [HEIGHT, IMAGE_WIDTH, CHANNELS],
        "classes": CLASSES,
        "batch": BATCH,
        "learning_rate": RATE,
        "weights": [" ".join([n, "x".join(map(str, s)), str(e), str(c)]) for n, s, e, c in weight_list()],
        "losses": losses(),
    }
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()

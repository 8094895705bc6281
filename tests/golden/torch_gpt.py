"""Writes torch_gpt.json: ten training losses of gpt-tiny as PyTorch computes them.

    python torch_gpt.py            # writes the answers
    python torch_gpt.py 8 256      # prints float32 losses for this batch and length

Initial weights and the one batch of tokens come from a counter hash scaled by powers of two, exact in
float32, so that the test (tests/end_to_end/gpt_test.cc) computes the same bits and nothing large is
stored. The model is written here from GPT-2's definition; Adam is Keras's form, in which epsilon is
added before the correction of the bias. Run with PyTorch 2.15 on a CPU.
"""

import json
import math
import pathlib
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F

from counter_hash import hashes, real

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 4, 1024
STEPS, RATE, TOKEN_SALT = 10, 0.001, 1001
# batch, length, dtype
CASES = [(2, 256, "float32"), (2, 16, "float64")]


def weight_list(length):
    """name, shape, e and c: weights are uniform in [c - 2^e, c + 2^e)."""
    out = [("wte/embeddings", (VOCABULARY, WIDTH), -5, 0), ("wpe/embeddings", (length, WIDTH), -5, 0)]

    def norm(name):
        out.append((name + "/gamma", (WIDTH,), -3, 1))
        out.append((name + "/beta", (WIDTH,), -4, 0))

    def dense(name, rows, columns, e):
        out.append((name + "/kernel", (rows, columns), e, 0))
        out.append((name + "/bias", (columns,), -6, 0))

    for i in range(LAYERS):
        block = f"block_{i}"
        norm(block + "/ln_1")
        dense(block + "/attn/qkv", WIDTH, 3 * WIDTH, -5)
        dense(block + "/attn/proj", WIDTH, WIDTH, -6)
        norm(block + "/ln_2")
        dense(block + "/mlp/fc", WIDTH, 4 * WIDTH, -5)
        dense(block + "/mlp/proj", 4 * WIDTH, WIDTH, -6)
    norm("ln_f")
    return out


def weights(length, dtype):
    out = {}
    for salt, (name, shape, e, c) in enumerate(weight_list(length)):
        values = real(salt, shape, e).astype(np.float32) + np.float32(c)
        out[name] = torch.tensor(values, dtype=dtype, requires_grad=True)
    return out


def logits(w, x):
    b, t = x.shape

    def norm(name, h):
        return F.layer_norm(h, (WIDTH,), w[name + "/gamma"], w[name + "/beta"], 1e-5)

    def dense(name, h):
        return h @ w[name + "/kernel"] + w[name + "/bias"]

    h = w["wte/embeddings"][x] + w["wpe/embeddings"]
    for i in range(LAYERS):
        block = f"block_{i}"
        q, k, v = dense(block + "/attn/qkv", norm(block + "/ln_1", h)).split(WIDTH, -1)
        q, k, v = (a.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for a in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH)
        h = h + dense(block + "/attn/proj", mixed)
        hidden = F.gelu(dense(block + "/mlp/fc", norm(block + "/ln_2", h)), approximate="tanh")
        h = h + dense(block + "/mlp/proj", hidden)
    return norm("ln_f", h) @ w["wte/embeddings"].T


def losses(batch, length, dtype):
    w = weights(length, dtype)
    tokens = (hashes(TOKEN_SALT, batch * (length + 1)) % np.uint32(VOCABULARY)).astype(np.int64)
    tokens = torch.tensor(tokens.reshape(batch, length + 1))
    x, y = tokens[:, :-1], tokens[:, 1:]
    m = {name: torch.zeros_like(v) for name, v in w.items()}
    s = {name: torch.zeros_like(v) for name, v in w.items()}
    out = []
    for step in range(1, STEPS + 1):
        loss = F.cross_entropy(logits(w, x).reshape(-1, VOCABULARY), y.reshape(-1))
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
    cases = []
    for batch, length, dtype in CASES:
        cases.append(
            {
                "batch": batch,
                "length": length,
                "dtype": dtype,
                "weights": [
                    {"name": n, "shape": s, "exponent": e, "centre": c}
                    for n, s, e, c in weight_list(length)
                ],
                "losses": losses(batch, length, getattr(torch, dtype)),
            }
        )
    answer = {
        "made_by": "tests/golden/torch_gpt.py",
        "torch": torch.__version__.split("+")[0],
        "token_salt": TOKEN_SALT,
        "vocabulary": VOCABULARY,
        "learning_rate": RATE,
        "cases": cases,
    }
    text = json.dumps(answer, indent=1)
    text = re.sub(r"{[^{}]*}", lambda weight: " ".join(weight[0].split()), text)  # one line each
    pathlib.Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for value in losses(int(sys.argv[1]), int(sys.argv[2]), torch.float32):
            print("%.9g" % value)
    else:
        main()

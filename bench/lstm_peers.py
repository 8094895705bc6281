#!/usr/bin/env python3
"""Training steps of the built-in model `lstm` beside the same model in PyTorch, TensorFlow (Keras) and JAX.

    bench/lstm_peers.py VENVS [--batch 64] [--steps 12] [--rounds 3] [--threads 2]

VENVS holds virtual environments `torch`, `tf` and `jax`. Embedding(1024, 128), LSTM(256) over 128 tokens,
Dense(1024); cross-entropy of the next token, Adam. Rounds are interleaved, so that a slow minute of the machine
hits all; printed are the best median of a round in milliseconds, and the floor: the step's floating-point
operations at the speed of PyTorch's largest matrix product.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VOCABULARY, WIDTH, UNITS, TOKENS = 1024, 128, 256, 128


def report(times):
    print(json.dumps({"median": statistics.median(times), "min": min(times)}))


def clock(step, steps, warm=3):
    times = []
    for i in range(warm + steps):
        start = time.perf_counter()
        step()
        if i >= warm:
            times.append(1e3 * (time.perf_counter() - start))
    report(times)


def torch_worker(a):
    import torch
    from torch import nn

    torch.set_num_threads(a.threads)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.lstm = nn.LSTM(WIDTH, UNITS, batch_first=True)
            self.dense = nn.Linear(UNITS, VOCABULARY)

        def forward(self, x):
            return self.dense(self.lstm(self.embedding(x))[0])

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    x, y = (torch.randint(VOCABULARY, (a.batch, TOKENS)) for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()

    clock(step, a.steps)


def floor_worker(a):
    """Seconds for the step's products at the speed of one large one."""
    import torch

    torch.set_num_threads(a.threads)
    rows, width = a.batch * TOKENS, 4 * UNITS
    left, right = torch.randn(rows, UNITS), torch.randn(UNITS, width)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    speed = 2 * rows * UNITS * width / min(times)
    flops = 3 * 2 * rows * (WIDTH * width + UNITS * width + UNITS * VOCABULARY)
    print(json.dumps({"gflop": flops / 1e9, "gflop_per_s": speed / 1e9, "median": 1e3 * flops / speed,
                      "min": 1e3 * flops / speed}))


def tf_worker(a):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(a.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model = keras.Sequential([
        keras.layers.Input((TOKENS,), dtype="int32"), keras.layers.Embedding(VOCABULARY, WIDTH),
        keras.layers.LSTM(UNITS, return_sequences=True), keras.layers.Dense(VOCABULARY)])
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = (tf.constant(np.random.randint(VOCABULARY, size=(a.batch, TOKENS)), tf.int32) for _ in range(2))
    clock(lambda: float(model.train_on_batch(x, y)), a.steps)


def jax_worker(a):
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: a.threads])
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def drawn(*shape):
        return jnp.asarray(rng.uniform(-0.05, 0.05, shape), jnp.float32)

    weights = {"table": drawn(VOCABULARY, WIDTH), "kernel": drawn(WIDTH, 4 * UNITS),
               "recurrent": drawn(UNITS, 4 * UNITS), "bias": drawn(4 * UNITS),
               "dense": drawn(UNITS, VOCABULARY), "dense_bias": drawn(VOCABULARY)}
    x, y = (jnp.asarray(rng.integers(VOCABULARY, size=(a.batch, TOKENS))) for _ in range(2))

    def loss(w):
        z = jnp.swapaxes(w["table"][x] @ w["kernel"] + w["bias"], 0, 1)  # (T, B, 4 H)

        def cell(state, step):
            h, c = state
            i, f, g, o = jnp.split(step + h @ w["recurrent"], 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((a.batch, UNITS))
        _, h = jax.lax.scan(cell, (zeros, zeros), z)
        logits = jnp.swapaxes(h, 0, 1) @ w["dense"] + w["dense_bias"]
        picked = jnp.take_along_axis(logits, y[:, :, None], 2)[:, :, 0]
        return jnp.mean(jax.nn.logsumexp(logits, 2) - picked)

    @jax.jit
    def update(w, m, v, t):
        g = jax.grad(loss)(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        w = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-7), w, m, v)
        return w, m, v, t + 1

    state = [weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), 1.0]

    def step():
        state[:] = update(*state)
        jax.block_until_ready(state[0])

    clock(step, a.steps)


def plimsoll(a):
    command = [os.path.join(ROOT, "build", "plimsoll"), "train", "lstm", "--batch", str(a.batch), "--steps",
               str(a.steps + 3), "--threads", str(a.threads), "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    times = [json.loads(line)["ms"] for line in lines if '"event":"step"' in line.replace(" ", "")]
    return {"median": statistics.median(times[3:]), "min": min(times[3:])}


WORKERS = {"torch": torch_worker, "tf": tf_worker, "jax": jax_worker, "floor": floor_worker}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("venvs")
    parser.add_argument("--worker")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    if a.worker:
        return WORKERS[a.worker](a)
    best = {}
    for _ in range(a.rounds):
        for name in ("plimsoll", *WORKERS):
            if name == "plimsoll":
                result = plimsoll(a)
            else:
                python = os.path.join(a.venvs, "torch" if name == "floor" else name, "bin", "python")
                arguments = [f"--{n}={getattr(a, n)}" for n in ("batch", "steps", "threads")]
                done = subprocess.run([python, __file__, a.venvs, "--worker", name, *arguments],
                                      capture_output=True, text=True,
                                      env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3",
                                           "OMP_NUM_THREADS": str(a.threads)})
                if done.returncode:
                    sys.exit(done.stderr)
                result = json.loads(done.stdout.splitlines()[-1])
            if name not in best or result["median"] < best[name]["median"]:
                best[name] = result
    for name, result in best.items():
        print(f"{name:9s} {result['median']:8.1f} ms (least {result['min']:.1f})  "
              f"plimsoll is {best['plimsoll']['median'] / result['median']:.2f} of it")
    print(f"floor: {best['floor']['gflop']:.1f} GFLOP at {best['floor']['gflop_per_s']:.0f} GFLOP/s")


if __name__ == "__main__":
    main()

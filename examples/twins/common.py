"""What the twins share: quiet start, the seed, Fashion-MNIST from its files, one way to report."""

import gzip
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(SEED)


def fashion_mnist(part):
    """uint8 images (N, 28, 28, 1) and labels (N,) of 'train' or 't10k'."""
    folder = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")

    def values(name, skip):
        path = os.path.join(folder, f"{part}-{name}-ubyte")
        opener = open if os.path.exists(path) else gzip.open
        with opener(path if opener is open else path + ".gz", "rb") as file:
            return np.frombuffer(file.read(), np.uint8)[skip:]

    return values("images-idx3", 16).reshape(-1, 28, 28, 1), values("labels-idx1", 8).astype("int32")


def noise(start, count):
    """The numbers of the linear congruential generator behind `start`, in [0, 1)."""
    values = np.empty(count, np.float32)
    for i in range(count):
        start = (start * 1664525 + 1013904223) & 0xFFFFFFFF
        values[i] = np.float32(start >> 8) / np.float32(1 << 24)
    return values, start

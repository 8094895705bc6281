#!/usr/bin/env python3
"""Writes tests/golden/files/: small files by numpy and safetensors that our readers must read.

    python3 -m venv /tmp/oracle-venv && /tmp/oracle-venv/bin/pip install numpy safetensors
    /tmp/oracle-venv/bin/python tests/golden/make_files.py            write the files
    /tmp/oracle-venv/bin/python tests/golden/make_files.py --read F   print a safetensors file of ours

The values are formulas of the element's index, which src/data/golden_test.cc repeats.
"""

import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

FILES = Path(__file__).resolve().parent / "files"


def arrays():
    index = np.arange(5 * 4 * 3 * 2)
    x = (index % 251).astype(np.uint8).reshape(5, 4, 3, 2)
    y = (np.arange(5) * 3 % 7).astype(np.int64)
    return x, y


def main():
    FILES.mkdir(exist_ok=True)
    x, y = arrays()
    np.savez(FILES / "stored.npz", x=x, y=y)
    np.savez_compressed(FILES / "compressed.npz", x=x, y=y)
    dense_x = (np.arange(12, dtype=np.float32) / 4 - 1).reshape(6, 2)
    dense_y = (np.arange(18, dtype=np.float64) / 8).reshape(6, 3)
    np.savez_compressed(FILES / "dense.npz", x=dense_x, y=dense_y)
    # Tokens as int16, labels a token as uint16, both of which we widen to int32.
    tokens = (np.arange(8, dtype=np.int16) * 5 % 11).reshape(2, 4)
    np.savez(FILES / "tokens.npz", x=tokens, y=(tokens.astype(np.uint16) + 1))
    np.savez(FILES / "fortran.npz", x=np.asfortranarray(dense_x), y=dense_y)
    np.savez(FILES / "object.npz", x=np.array([{}, []], dtype=object), y=np.zeros(2, np.int32))
    np.savez(FILES / "big_endian.npz", x=dense_x.astype(">f4"), y=np.zeros(6, np.int32))
    np.savez(FILES / "one_sample.npz", x=np.ones((1, 4), np.float32), y=np.zeros(1, np.int64))
    tensors = {
        "dense/kernel": (np.arange(6, dtype=np.float32) * 0.5).reshape(2, 3),
        "dense/bias": np.array([1.25, -2.5, 3.0], dtype=np.float64),
        "step": np.array(7, dtype=np.int64),
        "pixels": np.arange(5, dtype=np.uint8),
        "half": np.array([0.5, -1.5], dtype=np.float16),
        "mask": np.array([True, False, True]),
        "empty": np.zeros((0, 4), dtype=np.float32),
    }
    save_file(tensors, FILES / "small.safetensors", metadata={"format": "np", "note": "café \"q\""})
    save_file({"a": np.zeros(3, np.uint16)}, FILES / "uint16.safetensors")


def show(path):
    with safe_open(path, "np") as file:
        print(file.metadata())
        for name in file.keys():
            tensor = file.get_tensor(name)
            print(name, tensor.dtype, tensor.shape, tensor.ravel()[:8].tolist())


if __name__ == "__main__":
    show(sys.argv[2]) if sys.argv[1:2] == ["--read"] else main()

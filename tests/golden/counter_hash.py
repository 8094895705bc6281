"""Numbers that Python and C++ (tests/counter_hash.h) make alike: a hash of salt and position."""
import numpy as np


def hashes(salt, count):
    """uint32 (count,)"""
    x = np.arange(count, dtype=np.uint32) + np.uint32(salt * 0x9E3779B1 % 2**32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def real(salt, shape, exponent, centre=0.0):
    """float64, uniform in [centre - 2^exponent, centre + 2^exponent); exact in float32 if centre is 0."""
    whole = (hashes(salt, int(np.prod(shape))) >> np.uint32(8)).astype(np.float64) - 2.0**23
    return (whole * 2.0 ** (exponent - 23)).reshape(shape) + centre

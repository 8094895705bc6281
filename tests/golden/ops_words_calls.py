"""The calls of ops_words.py: CALLS, a list of (word, arguments). Arrays are tensors."""

import numpy as np

INF, NAN = float("inf"), float("nan")
FLOATS, WHOLE = ("float32", "float64"), ("int32", "int64")
REALS = FLOATS + WHOLE
ALL = REALS + ("uint8", "bool")

CALLS = []


def call(word, *args):
    CALLS.append((word, args))


def values(dtype, numbers):
    return np.array(numbers).astype(dtype)


def hashed(dtype, shape, salt=1, low=-2.0, high=2.0):
    """Spread numbers: eighths of them, so that sums are exact enough for every order."""
    n = int(np.prod(shape))
    spread = ((np.arange(n) + 7 * salt) * 2654435761 % 2**32) / 2**32
    numbers = np.round((low + (high - low) * spread) * 64) / 64
    if dtype == "bool":
        return (numbers > (low + high) / 2).reshape(shape)
    if dtype == "uint8":
        return np.round(np.abs(numbers) * 40).astype(dtype).reshape(shape)
    return (np.round(numbers * 8) if dtype in WHOLE else numbers).astype(dtype).reshape(shape)


# ---- odd numbers of each dtype

ODD = {
    "float32": [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 0.1, 1e-3, -1e-3, 1e-8, -1e-8, 1e-20, 10, -10, 88,
                100, -100, -110, 1000.25, 8388607.5, 8388608, 8388609, -16777217, 1e9, -1e9, 1e30, -1e30, 1e38, 1e-40, NAN, INF,
                -INF],
    "int32": [0, 1, -1, 2, -2, 3, 7, -7, 100, 16777217, 2**31 - 1, -2**31],
    "int64": [0, 1, -1, 2, -2, 3, 7, -7, 100, 2**53 + 1, -2**53 - 1, 2**62 + 1, 2**63 - 1, -2**63],
    "uint8": [0, 1, 2, 127, 128, 255],
    "bool": [False, True],
}
ODD["float64"] = ODD["float32"] + [709, 745, 1e300, -1e300, 2.0**52 + 1, -2.0**53, 1e-310, 1e15 + 0.5]
PAIRS = {
    "float32": [0.0, -0.0, 1, -1, 0.5, 2, -3, 0.1, 7, 1e9, NAN, INF, -INF],
    "int32": [0, 1, -1, 2, -3, 3, 7, -8, 46341, 2**31 - 1, -2**31],
    "int64": [0, 1, -1, 2, -3, 3, 7, -8, 2**53 + 1, 2**53, 3037000500, 2**63 - 1, -2**63],
    "uint8": [0, 1, 2, 200, 255],
    "bool": [False, True],
}
PAIRS["float64"] = PAIRS["float32"] + [1e300]
LARGE = [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 12345678.0, 3.1415927, 6.2831855, 1.5707964, 355.0, 710.0, 1e10, 1e12, 1e15, 1e20, 1e30,
         3e38, -1e6, -1e9, 0.7853982, 2.3561945, 16367173.0]


def odd(dtype):
    return values(dtype, ODD[dtype])


def pairs(dtype):
    """All pairs, as two vectors."""
    one = values(dtype, PAIRS[dtype])
    return np.repeat(one, len(one)), np.tile(one, len(one))


# ---- element by element

UNARY = """negative abs sign square sqrt rsqrt reciprocal exp expm1 log log1p log2 log10 sin
cos tanh sigmoid softplus relu floor ceil round trunc isnan isfinite isinf logical_not stop_gradient
zeros_like ones_like""".split()
BINARY = """add subtract multiply divide floor_divide mod maximum minimum power squared_difference equal
not_equal less less_equal greater greater_equal""".split()
SECOND_NAMES = "absolute true_divide pow".split()


def elementwise():
    for word in UNARY:
        for dtype in ALL:
            call(word, odd(dtype))
            call(word, hashed(dtype, (2, 3, 2)))
        for dtype in ("float32", "int64"):
            call(word, hashed(dtype, (), 3))
            call(word, hashed(dtype, (0, 3)))
    for word in ("sin", "cos"):
        for dtype in FLOATS:
            call(word, values(dtype, LARGE))
    for word in ("floor", "ceil", "round", "trunc"):
        for dtype in FLOATS:
            call(word, values(dtype, [2**22 + 0.5, 2**23 - 0.5, -2**22 - 1.5, 0.49999997, -0.5, -0.2, 4503599627370495.5]))
    for word in BINARY:
        for dtype in ALL:
            call(word, *pairs(dtype))
            call(word, hashed(dtype, (2, 1, 3)), hashed(dtype, (4, 1), 2))
        for dtype in REALS:
            x = values(dtype, PAIRS[dtype])
            some = (0, 2, -3) if word in ("floor_divide", "mod", "divide") else (2, -1)
            for n in some + ((0.1, INF) if dtype in FLOATS else (2**31 - 1, 0.5)):
                call(word, x, n)
                call(word, n, x)
        call(word, hashed("float32", (), 3), hashed("float32", (2, 2)))
        call(word, hashed("float32", (), 3), 2)
        call(word, hashed("float32", (0, 3)), hashed("float32", (3,)))
        call(word, hashed("int32", (0, 3)), hashed("int32", (1, 1)))
        call(word, hashed("float32", (2, 3)), hashed("float32", (2,)))
        for a in ALL:
            for b in ALL:
                if a != b:
                    call(word, hashed(a, (3,), 4, 1, 3), hashed(b, (3,), 5, 1, 3))
        x = values("int64", PAIRS["int64"])
        for n in (2**53 + 1, 2**63 - 1, -2**63):
            call(word, x, n)
            call(word, n, x)
    for word in SECOND_NAMES:
        for dtype in ("float32", "int32"):
            call(word, *[hashed(dtype, (3,), salt, 0.5, 2) for salt in range(1 if word == "absolute" else 2)])
    for dtype in FLOATS:
        bases = [-8, -2, -3, 0.0, -0.0, 0.5, 2, 81, -1.5, INF, -INF, NAN, 3, -1, 1]
        for n in (0, 1, 2, 3, -1, -2, -3, 0.5, -0.5, 1.5, 1 / 3, 5, 10, 1025, 1024, 10000001, -2001, 3.0, INF, -INF, NAN):
            call("power", values(dtype, bases), n)
        call("power", values(dtype, [-8, -2, -3]), values(dtype, [3, 2, 0]))
        call("power", values(dtype, [0.999, 1.001, -1.0001, 1.0000001]), values(dtype, [10000, 10000, 9999, 1e8]))
        call("mod", values(dtype, [1e9, 1.0, 5, -5, 5, -5, 7.5]), values(dtype, [7, 0.1, INF, INF, -INF, -INF, -2]))
        call("floor_divide", values(dtype, [1.0, 0.3, 6, -6, 1e9]), values(dtype, [0.1, 0.1, 0.1, 0.1, 7]))
    call("power", values("int32", [3, 2, -2, 0, 1, -1, 46341]), 4)
    call("power", values("int64", [3, 2, -2, 0, 1, -1, 3037000500]), 39)
    call("power", values("int32", [81, 9, 3]), values("int32", [1, 2, 4]))
    call("power", values("int64", [3, -3, 7]), values("int64", [39, 39, 22]))


def choices():
    for dtype in ALL:
        x = odd(dtype)
        for low, high in ((0, 1), (-1, 2), (1, 0)):
            call("clip", x, low, high)
    for dtype in FLOATS:
        call("clip", odd(dtype), -0.5, 1.5)
        call("clip", odd(dtype), NAN, 1.0)
        call("clip", hashed(dtype, (2, 3)), hashed(dtype, (3,), 2, -1, 0), hashed(dtype, (2, 1), 3, 0, 1))
    call("clip", odd("int64"), -2**53 - 1, 2**53 + 1)
    call("clip", odd("int32"), 0.5, 1.5)
    call("clip", hashed("float32", (0, 2)), 0, 1)
    for word in ("logical_and", "logical_or"):
        for dtype in ALL:
            call(word, *pairs(dtype))
        call(word, hashed("bool", (2, 1)), hashed("float32", (3,)))
        call(word, hashed("bool", ()), hashed("int32", (0, 3)))
    for dtype in ALL:
        a, b = pairs(dtype)
        call("where", hashed("bool", a.shape), a, b)
        call("where", hashed("bool", (2, 1)), hashed(dtype, (3,)), hashed(dtype, (2, 1), 2))
        call("where", hashed("bool", (4,)), hashed(dtype, (4,)), 1)
        call("where", hashed("bool", (4,)), 2, hashed(dtype, (4,)))
        call("where", odd(dtype)[::-1].copy(), odd(dtype), 0)
    for dtype in FLOATS:
        call("where", hashed("bool", (4,)), hashed(dtype, (4,)), 0.5)
        call("where", hashed("bool", (3,)), values(dtype, [NAN, INF, -INF]), values(dtype, [-INF, NAN, INF]))
    call("where", hashed("bool", (4,)), 1, 2)
    call("where", hashed("bool", (4,)), 1.5, 2)
    call("where", hashed("bool", (2,)), hashed("int32", (2,)), hashed("float64", (2,)))
    call("where", hashed("bool", (0, 2)), hashed("float32", (2,)), hashed("float32", (1, 2)))
    call("where", hashed("bool", ()), values("int64", [2**53 + 1, -2**63]), values("int64", [2**63 - 1, 5]))
    call("where", hashed("bool", (3,)), hashed("float32", (2,)), hashed("float32", (2,)))


# ---- over axes

REDUCED = "sum mean max min prod var std logsumexp norm any all".split()


def reductions_of_any_axes():
    """Contiguous, strided and both, with ends that no vector fills."""
    for word in ("sum", "mean", "max", "min", "prod", "norm", "var"):
        for dtype in ("float32", "float64", "int32") if word in ("sum", "max", "prod") else ("float32",):
            x = hashed(dtype, (3, 2, 5, 3), 1, -1.5, 1.5)
            for mask in range(1, 16):
                call(word, x, tuple(d for d in range(4) if mask >> d & 1), mask % 2)
            x = hashed(dtype, (2, 19, 3), 2, -1.5, 1.5)
            for axis in ((1,), (0, 1), (1, 2), (0, 2)):
                call(word, x, axis, 0)
    for dtype in ("uint8", "bool", "int64"):
        for axis in ((1,), (0, 2), (2,)):
            for word in ("sum", "max", "min", "any", "all", "prod"):
                call(word, hashed(dtype, (2, 19, 3), 2), axis, 0)


def reductions():
    reductions_of_any_axes()
    for word in REDUCED:
        for dtype in ALL:
            small = hashed(dtype, (2, 3, 4), 1, -1.5, 1.5)
            for axis in ((), (0,), (1,), (-1,), (0, 2), (-1, -2), (0, 1, 2)):
                call(word, small, axis, 0)
            call(word, small, (), 1)
            call(word, small, (1,), 1)
            call(word, small, (-1, 0), 1)
            if word != "prod" or dtype not in FLOATS:
                call(word, odd(dtype), (), 0)
            call(word, hashed(dtype, (), 3), (), 0)
            for axis in ((), (0,), (1,)):
                call(word, hashed(dtype, (0, 3)), axis, 0)
        for dtype in FLOATS:
            for numbers in ([NAN, 1, 2], [1, NAN], [INF, 1], [-INF, INF], [-INF, -INF], [1e30, -1e30], [0.0, 0.0], [3.0, 3.0],
                            [0.0, 2, 3], [0.0, 0.0, 3], [1000, 1001], [-1000, -1001], [2.0, 2.0, 1.0]):
                if 1e30 not in numbers or word not in ("norm", "std", "var", "prod"):
                    call(word, values(dtype, numbers), (0,), 0)
            call(word, hashed(dtype, (3, 67), 1, -1, 1), (1,), 0)
            call(word, hashed(dtype, (67, 3), 1, -1, 1), (0,), 0)
        call(word, values("int64", [2**53 + 1, 2**53, 3]), (0,), 0)
        call(word, values("int32", [-2**31, 5]), (0,), 0)
        for bad in ((3,), (-4,), (0, 0), (0, -3)):
            call(word, hashed("float32", (2, 3, 4)), bad, 0)
        call(word, hashed("float32", ()), (0,), 0)
        call(word, hashed("float32", (0,)), (), 1)
    for dtype in ALL:
        for axis in ((), (0,), (-1,), (0, 2)):
            call("count_nonzero", hashed(dtype, (2, 3, 4)), axis)
        call("count_nonzero", odd(dtype), ())
        call("count_nonzero", hashed(dtype, (0, 3)), (0,))
        for axis in (0, 1, -1):
            call("cumsum", hashed(dtype, (2, 3, 4), 1), axis)
        call("cumsum", odd(dtype), 0)
        call("cumsum", hashed(dtype, (0, 3)), 0)
        for word in ("argmax", "argmin"):
            x = hashed(dtype, (3, 5, 2), 1) if dtype == "bool" else np.round(hashed(dtype, (3, 5, 2), 1))
            for axis in ((), (0,), (1,), (-1,)):
                call(word, x, axis, 0)
                call(word, x, axis, 1)
            call(word, odd(dtype), (0,), 0)
            call(word, hashed(dtype, (2, 0)), (0,), 0)
            call(word, hashed(dtype, (2, 0)), (1,), 0)
            call(word, hashed(dtype, ()), (), 0)
    call("cumsum", hashed("float32", ()), 0)
    call("cumsum", hashed("float32", (2,)), 1)
    for word in ("argmax", "argmin"):
        for dtype in FLOATS:
            for numbers in ([1, NAN, 3], [NAN, NAN], [INF, INF, -INF], [-INF, -INF], [-0.0, 0.0], [0.0, -0.0], [1, NAN, INF, NAN]):
                call(word, values(dtype, numbers), (0,), 0)
        call(word, values("int32", [-2**31, 5, -2**31, 2**31 - 1]), (0,), 0)
        call(word, values("int64", [2**53, 2**53 + 1, -2**53 - 1, -2**53, -2**63]), (0,), 0)
        call(word, hashed("float32", (2, 3)), (2,), 0)



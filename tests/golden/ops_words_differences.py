"""Where `ops::` differs from Keras 3.15.1 on PyTorch on purpose: each line with its reason.

A line has the reason, its words, when it holds, and what is asked for instead: a function of (call,
args) that gives another call and other arguments, or None: the word is refused.
"""

import numpy as np
import torch
from keras import backend, ops
from keras.src.backend.common import dtypes

# 64-bit numbers stay 64 bits wide, as in Keras on TensorFlow.
dtypes.BIT64_TO_BIT32_DTYPE.update(int64="int64", float64="float64")

ARITHMETIC = set("""negative abs absolute sign square add subtract multiply floor_divide mod maximum minimum power pow
squared_difference clip where sum max min prod cumsum relu matmul dot outer einsum concatenate stack norm normalize""".split())
SMALL = ("uint8", "bool")


def arrays(args):
    return [a for a in args if isinstance(a, np.ndarray)]


def whole(args):
    """All of them integers, numbers too."""
    return all(a.dtype.kind == "i" if isinstance(a, np.ndarray) else isinstance(a, int) for a in args)


def refused(call, args):
    return None


def as_int32(call, args):
    return call, [a.astype("int32") if isinstance(a, np.ndarray) and a.dtype in SMALL else a for a in args]


def choice_as_int32(call, args):
    return call, [args[0]] + as_int32(call, args[1:])[1]


def as_float32(call, args):
    return call, [a.astype("float32") if isinstance(a, np.ndarray) and a.dtype.kind != "f" else a for a in args]


def meet(call, args):
    """In the common dtype."""
    common = np.dtype(backend.result_type(*[str(a.dtype) for a in as_int32(call, arrays(args))[1]]))
    return call, [a.astype(common) if isinstance(a, np.ndarray) else a for a in args]


def by_numpy(name):
    def run(a, b):
        dtype = np.result_type(*[x.numpy().dtype for x in (a, b) if isinstance(x, torch.Tensor)])
        a, b = (np.asarray(x, dtype) for x in (a, b))
        return torch.tensor(getattr(np, name)(a, b))

    return lambda call, args: (run, args)


def without_slope(call, args):
    return lambda a, b: call(*[x.detach() if isinstance(x, torch.Tensor) else x for x in (a, b)]), args


def first_takes_ties(word):
    def choose(a, b, call):
        most = call(a, b).detach()
        a, b = (torch.broadcast_to(ops.cast(x, most.dtype), most.shape) for x in (a, b))
        chosen = torch.where(a >= b if call is ops.maximum else a <= b, a, b)
        return chosen if not most.is_floating_point() else torch.where(most == chosen, chosen, most + chosen)

    if word == "clip":
        return lambda call, args: (
            lambda x, low, high: choose(choose(x, low, ops.maximum), high, ops.minimum), args)
    return lambda call, args: (lambda a, b: choose(a, b, call), args)


def sign_of_nan(call, args):
    return lambda x: torch.where(torch.isnan(x), np.nan, call(x)), args


def size_of_nan(call, args):
    return lambda x: x * torch.where(torch.isnan(x), np.nan, torch.sign(x.detach())), args


def relu_of_nan(call, args):
    return lambda x: torch.where(x > 0, x, torch.where(torch.isnan(x), x.detach(), 0)), args


def padded(call, args):
    x, width, value = args
    return lambda *_: torch.tensor(np.pad(x, list(zip(width[::2], width[1::2])), constant_values=value)), args


def itself(call, args):
    return lambda x: x, args


def of_none(call, args):
    """Over axes that have elements, where others have none."""
    _, axis, keepdims = args
    return lambda x, *_: torch.tensor(np.max(x.detach().numpy(), tuple(axis), keepdims=bool(keepdims))), args


def saturated(call, args):
    x, name = args
    least, most = np.iinfo(name).min, np.iinfo(name).max
    exact = [0 if v != v else least if v <= least else most if v >= most else int(v) for v in np.ravel(x).tolist()]
    return lambda *_: torch.tensor(np.array(exact, dtype=name).reshape(x.shape)), args


def has_nan(args):
    return args[0].dtype.kind == "f" and np.isnan(args[0]).any()


def equal_classes(call, args):
    return lambda x, classes, dtype: ops.cast(x[..., None].to(torch.int64) == torch.arange(classes), dtype), args


def root_of_squares(call, args):
    def run(x, axis, keepdims):
        axis = axis or tuple(range(x.ndim))
        return torch.sqrt(torch.sum(torch.square(x), axis, bool(keepdims))) if axis else torch.sqrt(torch.square(x))

    return run, args


def by_larger_length(call, args):
    return lambda x, axis: torch.nn.functional.normalize(x, dim=axis), args


def in_its_dtype(call, args):
    def run(equation, *operands):
        return call(equation, *operands).to(operands[0].dtype)

    return run, args


def through_mean(call, args):
    def run(x, axis, keepdims):
        axis, keepdims = tuple(axis) or None, bool(keepdims)
        return torch.mean(torch.square(x - torch.mean(x, axis, keepdim=True)), axis, keepdim=keepdims)

    return run, args


def nan_slopes(call, args):
    return lambda *given: call(*given) + 0 * torch.sum(given[0].detach() * 0 + given[0] * np.nan).nan_to_num(0), args


def chain(call, args):
    def run(x, *_):
        product = x[0]
        for one in x[1:]:
            product = product * one
        return product

    return run, args


def spaced(call, args):
    def run(start, stop, num, dtype):
        with np.errstate(all="ignore"):
            half = 1 if np.isfinite(stop - start) else 0.5
            return torch.tensor((np.linspace(start * half, stop * half, num) / half).astype(dtype) if half < 1 else
                                np.linspace(start, stop, num, dtype=dtype))

    return run, args


def outside(word):
    """In a graph an index outside takes NaN, an integer's least, 255 or true."""

    def run(x, indices, axis):
        axis = axis + x.ndim if axis < 0 else axis
        n = x.shape[axis]
        places = torch.where(indices < 0, indices.to(torch.int64) + n, indices.to(torch.int64))
        known = (indices.to(torch.int64) >= -n) & (places >= 0) & (places < n)
        fill = {"float32": np.nan, "float64": np.nan, "uint8": 255, "bool": True}.get(str(x.numpy(force=True).dtype))
        fill = torch.iinfo(x.dtype).min if fill is None else fill
        if n == 0:
            x, n = torch.full([1 if d == axis else s for d, s in enumerate(x.shape)], fill, dtype=x.dtype), 1
        places = torch.where(known, places, 0)
        if word == "take_along_axis":
            shape = torch.broadcast_shapes(*[[s for d, s in enumerate(t.shape) if d != axis] for t in (x, places)])
            spread = [torch.broadcast_to(t, shape[:axis] + (t.shape[axis],) + shape[axis:]) for t in (x, places, known)]
            return torch.where(spread[2], torch.gather(spread[0], axis, spread[1]), fill)
        taken = torch.index_select(x, axis, places.ravel()).reshape(x.shape[:axis] + places.shape + x.shape[axis + 1:])
        shape = (1,) * axis + tuple(places.shape) + (1,) * (x.ndim - axis - 1)
        return torch.where(known.reshape(shape), taken, fill)

    return run


def traced_answer(word, args):
    """What the word does in a graph where it is refused on values, or None."""
    if word not in ("take", "take_along_axis") or not isinstance(args[1], np.ndarray) or args[0].ndim == 0:
        return None
    x, indices, axis = args
    if not -x.ndim <= axis < x.ndim or (word == "take_along_axis" and indices.ndim != x.ndim):
        return None
    n = x.shape[axis]
    return outside(word) if ((indices < -n) | (indices >= n)).any() else None


def any_of(words):
    return set(words.split())


AXES = any_of("""sum mean max min prod var std logsumexp norm any all count_nonzero cumsum argmax argmin softmax
log_softmax normalize sort argsort swapaxes moveaxis flip take take_along_axis squeeze""")


def names_an_axis(args):
    return args[0].ndim == 0 and any(isinstance(a, int) or (isinstance(a, tuple) and len(a) > 0) for a in args[1:2])


DIFFERENCES = [
    # Differences by definition.
    ("an axis of a tensor without dimensions", AXES, names_an_axis, refused),
    ("an axis of a tensor without dimensions", any_of("take take_along_axis"), lambda a: a[0].ndim == 0, refused),
    ("bytes and booleans count as int32", any_of("where"),
     lambda a: all(x.dtype in SMALL for x in arrays(a[1:])) and any(x.dtype == "uint8" for x in arrays(a[1:])), choice_as_int32),
    ("bytes and booleans count as int32", ARITHMETIC - {"where", "concatenate", "stack", "einsum"},
     lambda a: any(x.dtype in SMALL for x in arrays(a)), as_int32),
    ("bytes and booleans count as int32", any_of("concatenate stack"),
     lambda a: len({x.dtype for x in arrays(a)}) > 1 and any(x.dtype in SMALL for x in arrays(a)), as_int32),
    ("ties of maximum and minimum go to the first operand", any_of("maximum"), lambda a: True, first_takes_ties("maximum")),
    ("ties of maximum and minimum go to the first operand", any_of("minimum"), lambda a: True, first_takes_ties("minimum")),
    ("ties of clip go to x", any_of("clip"), lambda a: a[0].dtype.kind == "f", first_takes_ties("clip")),
    ("sign of NaN is NaN, as in Keras on TensorFlow", any_of("sign"), has_nan, sign_of_nan),
    ("the slope of abs at NaN is NaN, as in Keras on TensorFlow", any_of("abs absolute"), has_nan, size_of_nan),
    ("the slope of relu at NaN is 0, as in Keras on TensorFlow", any_of("relu"), has_nan, relu_of_nan),
    ("casts that overflow saturate", any_of("cast"),
     lambda a: a[0].dtype.kind == "f" and a[1] not in ("float32", "float64", "bool"), saturated),
    ("the slope of norm at 0 is NaN", any_of("norm"), lambda a: a[0].dtype.kind == "f" and not a[0].any(), root_of_squares),
    # What was decided for these words.
    ("an index outside", any_of("take_along_axis"), lambda a: a[1].size > 0 and traced_answer("take_along_axis", a) is not None, refused),
    ("an integer divided by 0 is 0", any_of("floor_divide mod"), whole, None),
    ("a negative number as the power of integers", any_of("power pow"),
     lambda a: isinstance(a[0], np.ndarray) and a[0].dtype.kind == "i" and isinstance(a[1], int) and a[1] < 0, refused),
    ("floor_divide has slopes: 0", any_of("floor_divide"), lambda a: any(x.dtype.kind == "f" for x in arrays(a)), without_slope),
    ("activations of integers are float32", any_of("softplus softmax log_softmax"),
     lambda a: a[0].dtype.kind != "f", as_float32),
    ("one_hot of what is no class is zeros", any_of("one_hot"),
     lambda a: a[1] >= 0 and a[0].size > 0 and a[0].max() >= a[1], equal_classes),
    ("linspace is NumPy's: integers rounded down; finite between finite ends", any_of("linspace"), lambda a: True, spaced),
    ("pad with an integer is exact", any_of("pad"),
     lambda a: a[0].dtype.kind == "i" and len(a[1]) == 2 * a[0].ndim and min(a[1]) >= 0, padded),
    ("dot of integers is exact, as matmul's", any_of("dot"),
     lambda a: all(x.dtype.kind != "f" and x.ndim for x in arrays(a)), lambda call, args: (ops.matmul, args)),
    ("a negative width of pad", any_of("pad"), lambda a: min(a[1], default=0) < 0, refused),
    # Where Keras on PyTorch stands alone: the answer of NumPy, PyTorch or Keras elsewhere.
    ("operands of einsum meet in their common dtype", any_of("einsum"),
     lambda a: len({x.dtype for x in arrays(a)}) > 1 or any(x.dtype in SMALL for x in arrays(a)), meet),
    ("einsum of integers keeps their dtype, as Keras on TensorFlow", any_of("einsum"),
     lambda a: all(x.dtype.kind != "f" for x in arrays(a)), in_its_dtype),
    ("an axis named twice", any_of("prod"), lambda a: len({d % max(a[0].ndim, 1) for d in a[1]}) < len(a[1]), refused),
    ("slopes of prod are products of the others, NaN or not", any_of("prod"),
     lambda a: a[0].ndim == 1 and a[0].dtype.kind == "f" and not np.isfinite(a[0]).all(), chain),
    ("the slope of var of infinities is NaN, through the mean, as Keras on TensorFlow", any_of("var"),
     lambda a: a[0].dtype.kind == "f" and np.isinf(a[0]).any(), through_mean),
    ("slopes of max and min beside a NaN are NaN, as Keras on TensorFlow and JAX", any_of("max min"), has_nan, nan_slopes),
    ("round of integers is exact, as NumPy's", any_of("round"), lambda a: a[0].dtype.kind != "f", itself),
    ("max and min of no element along other axes, as NumPy", any_of("max min"),
     lambda a: a[0].size == 0 and len(a[1]) > 0 and all(-a[0].ndim <= d < a[0].ndim and a[0].shape[d] for d in a[1]), of_none),
    ("the slope of normalize at 0 is 1 / epsilon, as of PyTorch's own", any_of("normalize"),
     lambda a: a[0].dtype.kind == "f" and a[0].size > 0 and not a[0].any(), by_larger_length),
    ("a negative number of classes", any_of("one_hot"), lambda a: a[1] < 0, refused),
    ("squeeze of a longer axis, as NumPy", any_of("squeeze"),
     lambda a: any(-a[0].ndim <= d < a[0].ndim and a[0].shape[d] != 1 for d in a[1]), refused),
    ("pad of no dimensions, as NumPy", any_of("pad"), lambda a: a[0].ndim == 0, lambda call, args: (lambda x, *_: x, args)),
    ("pad asks for a pair for each axis", any_of("pad"), lambda a: len(a[1]) != 2 * a[0].ndim, refused),
]


def difference(word, args, call):
    """(call, arguments, reason): asked as they are, or as a line above says."""
    reason = None
    for why, words, holds, answer in DIFFERENCES:
        if word not in words or not holds(args):
            continue
        changed = (by_numpy(word) if answer is None else answer)(call, args)
        if changed is None:
            return None, args, why
        reason = why if reason is None else reason + "; " + why
        call, args = changed
    return call, args, reason

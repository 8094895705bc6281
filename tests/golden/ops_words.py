"""Writes ops_words.txt: calls of the words of `ops::` (src/op/ops.h) with their answers.

    KERAS_BACKEND=torch python tests/golden/ops_words.py > tests/golden/ops_words.txt

Run with Keras 3.15.1 on PyTorch 2.15.0 and NumPy, on a CPU. What keras.ops has is asked for there,
results' dtypes too; the rest is NumPy's. Answers in float32 are those of float64, rounded. Where a
call differs on purpose, ops_words_differences.py has a line with the reason, and the answer stored
is the one that the line gives. tests/ops_words.h reads the file and describes its format.
"""

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from keras import ops

import ops_words_calls as calls
import ops_words_shapes as more
from ops_words_differences import difference, traced_answer

ROOT = Path(__file__).resolve().parent.parent.parent


# ---- the words


def axes(given):
    """No axis, one, or several, as Keras takes them."""
    return None if len(given) == 0 else given[0] if len(given) == 1 else tuple(given)


def reduction(word):
    """keepdims for all axes: Keras on PyTorch forgets it where no axis is named."""

    def run(x, axis=(), keepdims=0):
        axis = tuple(range(x.ndim)) if keepdims and not axis else axis
        return word(x, axis=axes(axis), keepdims=bool(keepdims))

    return run


def norm(x, axis=(), keepdims=0):
    """The root of the sum of squares: Keras's, which has it for at most two axes."""
    if len(axis or x.shape) < 3 or not (axis or keepdims):
        return reduction(ops.norm)(x, axis, keepdims)
    return ops.sqrt(reduction(ops.sum)(ops.square(x), axis, keepdims))


def count_nonzero(x, axis=()):
    """NumPy's: Keras on PyTorch reverses the dimensions of the result."""
    return torch.tensor(np.count_nonzero(x.detach().numpy(), axis=axes(axis)), dtype=torch.int32)


def sort(x, axis):
    """Equal ones in their order, so that slopes are those of one place."""
    return torch.take_along_dim(x, torch.argsort(x, dim=axis, stable=True), axis)


def slice_of(x, start, size):
    """-1: all that are left."""
    if len(start) != x.ndim or len(size) != x.ndim:
        raise ValueError("slice")
    for begin, count, all_of in zip(start, size, x.shape):
        if not 0 <= begin <= all_of or not (count == -1 or 0 <= count <= all_of - begin):
            raise ValueError("slice")
    return x[tuple(slice(b, None if n == -1 else b + n) for b, n in zip(start, size))]


def top_k(x, k):
    """Equal ones in their order, which torch.topk does not promise."""
    if x.ndim < 1 or not 0 <= k <= x.shape[-1]:
        raise ValueError("top_k")
    indices = torch.argsort(x, dim=-1, descending=True, stable=True)[..., :k]
    return [torch.gather(x, -1, indices), indices.to(torch.int32)]


SAME = """add subtract multiply divide true_divide floor_divide mod maximum minimum power clip
negative abs absolute sign square sqrt rsqrt reciprocal exp expm1 log log1p log2 log10 sin cos tanh
sigmoid softplus relu floor ceil round trunc equal not_equal less less_equal greater greater_equal
logical_and logical_or logical_not isnan isfinite isinf where reshape ravel swapaxes moveaxis
expand_dims broadcast_to take take_along_axis repeat tile roll argsort matmul dot outer softmax
log_softmax cast stop_gradient zeros ones full zeros_like ones_like full_like""".split()
REDUCTIONS = "sum mean max min prod var std logsumexp any all".split()

WORDS = {name: getattr(ops, name) for name in SAME}
WORDS |= {name: reduction(getattr(ops, name)) for name in REDUCTIONS}
WORDS |= {
    "pow": ops.power,
    "squared_difference": lambda a, b: ops.square(ops.subtract(a, b)),
    "norm": norm,
    "count_nonzero": count_nonzero,
    "sort": sort,
    "cumsum": lambda x, axis: ops.cumsum(x, axis=axis),
    "argmax": lambda x, axis=(), keepdims=0: ops.argmax(x, axis=axes(axis), keepdims=bool(keepdims)),
    "argmin": lambda x, axis=(), keepdims=0: ops.argmin(x, axis=axes(axis), keepdims=bool(keepdims)),
    "transpose": lambda x, order=(): ops.transpose(x, tuple(order) or None),
    "squeeze": lambda x, axis=(): ops.squeeze(x, axis=axes(axis)),
    "concatenate": lambda axis, *parts: ops.concatenate(list(parts), axis=axis),
    "stack": lambda axis, *parts: ops.stack(list(parts), axis=axis),
    "unstack": lambda x, axis=0: list(ops.unstack(x, axis=axis)),
    "split": lambda x, sections, axis=0: list(ops.split(x, sections, axis=axis)),
    "slice": slice_of,
    "pad": lambda x, width, value=0: ops.pad(
        x, tuple(zip(width[::2], width[1::2])), constant_values=value),
    "flip": lambda x, axis=(): ops.flip(x, axis=axes(axis)),
    "top_k": top_k,
    "einsum": ops.einsum,
    "normalize": lambda x, axis=-1, epsilon=1e-12: ops.normalize(x, axis=axis, epsilon=epsilon),
    "one_hot": lambda x, classes, dtype="float32": ops.one_hot(x, classes, dtype=dtype),
    "eye": lambda n, dtype: ops.eye(n, dtype=dtype),
    "arange": lambda stop, dtype="int32": ops.arange(stop, dtype=dtype),
    "linspace": lambda start, stop, num, dtype="float32": ops.linspace(start, stop, num, dtype=dtype),
    "constant": lambda value, dtype: torch.tensor(value, dtype=getattr(torch, dtype)),
}
# Which take their numbers as they are.
KEYWORDS = [WORDS["pad"], WORDS["normalize"], WORDS["full_like"]]


# ---- asking


def weights(shape):
    """The gradient of the result: none of them 0."""
    return np.array([(i * 7 % 11 - 5) * 0.5 + 0.25 for i in range(int(np.prod(shape)))]).reshape(shape)


def wide(arg):
    """What a float32 argument is in float64."""
    if isinstance(arg, np.ndarray):
        return arg.astype("float64") if arg.dtype == "float32" else arg
    if isinstance(arg, float):
        with np.errstate(over="ignore"):
            return float(np.float32(arg))
    return "float64" if arg == "float32" else arg


def ask(word, args):
    """(results, gradients by argument)"""
    # Numbers beside float64 stay as they are; Keras on PyTorch would round them to float32 first.
    exact = any(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in args)
    given = [torch.tensor(a) if isinstance(a, np.ndarray) else
             torch.tensor(a, dtype=torch.float64) if exact and isinstance(a, float) and word not in KEYWORDS else a for a in args]
    sources = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    for i in sources:
        given[i].requires_grad_(True)
    results = word(*given)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    results = [r if isinstance(r, torch.Tensor) else torch.tensor(r) for r in results]
    answers = [r.detach().numpy() for r in results]
    if not sources or not any(r.is_floating_point() for r in results):
        return answers, {}
    slopes = [np.zeros(tuple(given[i].shape), args[i].dtype) for i in sources]
    linked = [r for r in results if r.requires_grad]
    if linked:
        found = torch.autograd.grad(
            linked, [given[i] for i in sources], [torch.tensor(weights(r.shape), dtype=r.dtype) for r in linked],
            allow_unused=True)
        slopes = [s if f is None else f.numpy() for s, f in zip(slopes, found)]
    return answers, dict(zip(sources, slopes))


def narrow(fine, coarse, name):
    """float64's answer in float32. Where float32 has another kind of number, that is kept, but of
    mod, which is NaN there for large numbers."""
    if coarse.dtype != np.float32 or fine.dtype != np.float64:
        return coarse
    with np.errstate(over="ignore", invalid="ignore"):
        answer = fine.astype(np.float32)
    odd = (np.isnan(answer) != np.isnan(coarse)) | (np.isinf(answer) != np.isinf(coarse))
    for a, b in zip(np.ravel(answer[odd])[:4], np.ravel(coarse[odd])):
        print(f"{name}: float64 {a}, float32 {b}", file=sys.stderr)
    return answer if name.startswith("mod ") else np.where(odd, coarse, answer)


class Refused(Exception):
    pass


def answer_of(word, args):
    """(results, gradients, reason) or Refused."""
    call, args, reason = difference(word, args, WORDS[word])
    if call is None:
        raise Refused(reason)
    return answer_by(call, word, args) + (reason,)


def answer_by(call, word, args):
    try:
        results, gradients = ask(call, args)
        if any(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in args):
            fine, fine_gradients = ask(call, [wide(a) for a in args])
            name = text_of(word, args)
            results = [narrow(f, c, name) for f, c in zip(fine, results)]
            gradients = {i: narrow(fine_gradients[i], g, name + " slope") for i, g in gradients.items()}
    except Exception as error:  # whatever it says
        raise Refused(f"{type(error).__name__}: {error}".split("\n")[0][:100])
    return results, gradients


# ---- writing


tensors = {}


def number(value):
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    short = f"{value:.9g}" if isinstance(value, np.float32) else repr(float(value))
    exact = np.float32(value) if isinstance(value, np.float32) else float(value)
    plain = f"{value:.6g}"
    text = plain if type(exact)(plain) == exact or value != value else short
    return text.replace("e+", "e")


def numbers(array):
    flat = np.ravel(array)
    texts = [number(v) for v in flat]
    return " " + texts[0] + "*" if len(texts) > 1 and len(set(texts)) == 1 else "".join(" " + t for t in texts)


def tensor_text(array):
    return f"{array.dtype} {'x'.join(map(str, array.shape)) or '.'}{numbers(array)}"


def argument(arg):
    if isinstance(arg, np.ndarray):
        text = tensor_text(arg)
        if text not in tensors:
            tensors[text] = len(tensors)
            print(f"= {text}")
        return f"${tensors[text]}"
    if isinstance(arg, str):
        return "'" + arg
    if isinstance(arg, (list, tuple)):
        return "[" + ",".join(str(v) for v in arg) + "]"
    text = number(arg)
    return text + "." if isinstance(arg, float) and re.fullmatch(r"-?\d+", text) else text


def text_of(word, args):
    parts = [f"{a.dtype}{a.shape}" if isinstance(a, np.ndarray) else str(a) for a in args]
    return " ".join([word] + parts)


def declared_words():
    """The functions that ops.h declares in namespace ops."""
    text = (ROOT / "src/op/ops.h").read_text()
    text = re.sub(r"//[^\n]*", "", text[text.index("namespace ops {"):])
    return set(re.findall(r"^(?:inline )?(?:Tensors?|TopK) (\w+)\(", text, re.MULTILINE))


def main():
    warnings.filterwarnings("ignore")
    for part in (calls.elementwise, calls.choices, calls.reductions, more.shapes, more.order, more.products, more.softmaxes,
                 more.values_from_numbers):
        part()
    called = {word for word, _ in calls.CALLS}
    missing = declared_words() - called
    if missing:
        sys.exit("ops_words.py: no call of " + ", ".join(sorted(missing)))
    print("# Made by tests/golden/ops_words.py; the format is described in tests/ops_words.h.")
    seen = set()
    for word, args in calls.CALLS:
        line = " ".join([word] + [argument(a) for a in args])
        if line in seen:
            continue
        seen.add(line)
        print(line)
        try:
            results, gradients, reason = answer_of(word, args)
        except Refused as refused:
            print("refused", refused)
            call = traced_answer(word, args)
            if call is None:
                continue
            (results, gradients), reason = answer_by(call, word, args), "in a graph an index outside takes NaN or the like"
        if reason:
            print("differs", reason)
        for result in results:
            print("> " + tensor_text(result))
        for i, slope in gradients.items():
            if args[i].dtype.kind == "f":  # integers that a difference made floats have none
                print(f"d {i}{numbers(slope.astype(args[i].dtype))}")


main()

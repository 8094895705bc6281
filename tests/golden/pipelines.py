"""What tf.data makes of pipelines put together at random, for random_pipelines_test.cc. Prints JSON.

    python pipelines.py [COUNT [SEED]] > pipelines.json

A pipeline is a list of stages, each a list of a word and numbers; "zip" and "concatenate" have a second pipeline in it. Elements
are lists of int64 tensors: [[shape, numbers], ...]. Shuffles are left out: every engine draws its own numbers."""
import json
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

MOST = 60  # elements that are compared


class Pipeline:
    """tf.data's, and what is known of its elements: for each field its rank, and whether all have one shape."""

    def __init__(self, data, stages, fields):
        self.data, self.stages, self.fields = data, stages, fields

    def then(self, data, stage, fields=None):
        return Pipeline(data, self.stages + [stage], self.fields if fields is None else fields)

    def scalars(self):
        return len(self.fields) == 1 and self.fields[0] == (0, True)

    def one_shape(self):
        return all(known for _, known in self.fields)

    def tuple_map(self, f):
        if len(self.fields) == 1:
            return self.data.map(f)
        return self.data.map(lambda *xs: tuple(f(x) for x in xs))



def source(rng):
    begin, step = rng.randint(-5, 20), rng.choice([1, 1, 1, 2, 3, -1])
    count = rng.choice([0, 1, 2, 7, 13, 24, 40])
    end = begin + step * count
    return Pipeline(tf.data.Dataset.range(begin, end, step), [["range", begin, end, step]], [(0, True)])


def inner(x, m):
    return tf.data.Dataset.range(tf.math.floormod(x, m)).map(lambda i: i + 100 * x)


def raises(x, m):
    with tf.control_dependencies([tf.debugging.Assert(tf.math.floormod(x, m) != 0, [x])]):
        return tf.identity(x)


def as_windows(*windows):
    parts = tuple(w.batch(1 << 20) for w in windows)
    return tf.data.Dataset.zip(parts) if len(parts) > 1 else parts[0]


def more(p, rng, depth):
    """One more stage, or None where the one drawn does not suit."""
    d, f = p.data, p.fields
    word = rng.choice(["scale", "ragged", "sum", "filter", "batch", "batch", "padded_batch", "unbatch", "rebatch", "window", "take", "skip",
                       "shard", "repeat", "concatenate", "zip", "enumerate", "flat_map", "interleave", "interleave", "bucket", "cache",
                       "prefetch", "ignore_errors", "map_parallel"])
    n, m = rng.randint(1, 6), rng.randint(2, 6)
    drop = rng.random() < 0.5
    if word == "scale":
        return p.then(p.tuple_map(lambda x: x * n - m), [word, n, -m])
    if word == "map_parallel":
        data = d.map(lambda *xs: tuple(x + m for x in xs) if len(xs) > 1 else xs[0] + m, num_parallel_calls=n)
        return p.then(data, [word, m, n])
    if word == "ragged" and p.scalars():
        return p.then(d.map(lambda x: tf.range(tf.math.floormod(x, m)) + x), [word, m], [(1, False)])
    if word == "sum":
        return p.then(d.map(lambda *xs: tf.reduce_sum(xs[0])), [word], [(0, True)])
    if word == "filter":
        return p.then(d.filter(lambda *xs: tf.math.floormod(tf.reduce_sum(xs[0]), m) != 0), [word, m])
    if word == "batch" and p.one_shape() and max(r for r, _ in f) < 3:
        return p.then(d.batch(n, drop_remainder=drop), [word, n, drop], [(r + 1, drop) for r, _ in f])
    if word == "padded_batch" and max(r for r, _ in f) < 3:
        minus = tf.constant(-1, tf.int64)
        values = minus if len(f) == 1 else tuple(minus for _ in f)
        return p.then(d.padded_batch(n, padding_values=values, drop_remainder=drop), [word, n, drop], [(r + 1, False) for r, _ in f])
    if word == "unbatch" and len(f) == 1 and f[0][0] > 0:
        return p.then(d.unbatch(), [word], [(f[0][0] - 1, f[0][0] == 1)])
    if word == "rebatch" and len(f) == 1 and (f[0] == (1, True) or f[0] == (1, False)):
        return p.then(d.rebatch(n, drop_remainder=drop), [word, n, drop], [(1, drop)])
    if word == "window" and p.one_shape() and max(r for r, _ in f) < 3:
        shift, stride = rng.randint(1, 4), rng.randint(1, 3)
        data = d.window(n, shift=shift, stride=stride, drop_remainder=True).flat_map(as_windows)
        return p.then(data, [word, n, shift, stride], [(r + 1, True) for r, _ in f])
    if word == "take":
        count = rng.choice([0, 3, 10, 1000, -1])
        return p.then(d.take(count), [word, count])
    if word == "skip":
        count = rng.choice([0, 1, 5, 1000])
        return p.then(d.skip(count), [word, count])
    if word == "shard":
        index = rng.randrange(n)
        return p.then(d.shard(n, index), [word, n, index])
    if word == "repeat":
        count = rng.choice([0, 1, 2, 3, -1])
        if count < 0 and p.data.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            return None  # perhaps empty for ever
        return p.then(d.repeat(count), [word, count])
    if word == "concatenate" and p.scalars() and depth == 0:
        other = make(rng, rng.randint(0, 2), 1)
        if not other.scalars():
            return None
        return p.then(d.concatenate(other.data), [word, other.stages])
    if word == "zip" and len(f) == 1 and depth == 0:
        other = make(rng, rng.randint(0, 3), 1)
        if len(other.fields) != 1:
            return None
        return p.then(tf.data.Dataset.zip((d, other.data)), [word, other.stages], f + other.fields)
    if word == "enumerate" and len(f) == 1:
        return p.then(d.enumerate(start=n), [word, n], [(0, True)] + f)
    if word == "flat_map" and p.scalars():
        return p.then(d.flat_map(lambda x: inner(x, m)), [word, m])
    if word == "interleave" and p.scalars():
        cycle, block = rng.randint(1, 5), rng.randint(1, 3)
        data = d.interleave(lambda x: inner(x, m), cycle_length=cycle, block_length=block)
        return p.then(data, [word, m, cycle, block])
    if word == "bucket" and len(f) == 1 and f[0][0] == 1:
        data = d.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [2, 4], [n, m, 2], padding_values=tf.constant(-1, tf.int64),
                                           drop_remainder=drop)
        return p.then(data, [word, n, m, drop], [(2, False)])
    if word == "cache" and p.data.cardinality() != tf.data.INFINITE_CARDINALITY:
        return p.then(d.cache(), [word])
    if word == "prefetch":
        return p.then(d.prefetch(n), [word, n])
    if word == "ignore_errors" and p.scalars():
        return p.then(d.map(lambda x: raises(x, m)).ignore_errors(), [word, m])
    return None


def make(rng, length, depth=0):
    p = source(rng)
    while len(p.stages) < length + 1:
        p = more(p, rng, depth) or p
    return p


def tensors(element):
    parts = element if isinstance(element, tuple) else (element,)
    return [[list(x.shape), x.numpy().flatten().tolist()] for x in parts]


def answer(p):
    elements = [tensors(e) for e in p.data.take(MOST)]
    return {"stages": p.stages, "cardinality": int(p.data.cardinality()), "elements": elements}


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    cases = []
    while len(cases) < count:
        p = make(rng, rng.randint(2, 6))
        try:
            case = answer(p)
        except tf.errors.InvalidArgumentError:
            continue  # batches of unequal shapes
        if sum(len(x) for e in case["elements"] for _, x in e) < 2000:
            cases.append(case)
    print("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "]")


main()

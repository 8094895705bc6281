"""tf.data's cost for each element, beside bench/data_elements.cc: python data_elements_peers.py [COUNT]"""
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000


def measure(name, data, elements):
    # reduce() runs inside the engine: no element comes to Python.
    for _ in range(2):
        start = time.perf_counter()
        data.reduce(tf.constant(0, tf.int64), lambda n, _: n + 1).numpy()
        seconds = time.perf_counter() - start
    print(f"{name:24} {1e9 * seconds / elements:9.1f} ns an element, {1e-6 * elements / seconds:.2f} M elements/s")


options = tf.data.Options()
options.experimental_optimization.apply_default_optimizations = True
numbers = tf.data.Dataset.range(count)
measure("range", numbers, count)
measure("range.map", numbers.map(lambda x: x * 2), count)
# The cost of counting batches is a 32nd of that of counting elements.
measure("range.map.batch(32)", numbers.map(lambda x: x * 2).batch(32), count)
measure("range.map(AUTOTUNE)", numbers.take(count // 10).map(lambda x: x * 2, num_parallel_calls=tf.data.AUTOTUNE), count // 10)
rows = tf.data.Dataset.from_tensor_slices(tf.zeros((count // 16, 16)))
measure("slices.map.batch(32)", rows.map(lambda x: x + 0).batch(32), count // 16)

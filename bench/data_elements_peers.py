"""tf.data's cost for each element in processor time of all threads, beside bench/data_elements.cc: python data_elements_peers.py [COUNT]"""
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000


def measure(name, data, elements):
    # What comes to Python is a thousandth of the elements.
    for _ in range(2):
        start = time.process_time()
        for _ in data:
            pass
        seconds = time.process_time() - start
    print(f"{name:24} {1e9 * seconds / elements:9.1f} ns an element, {1e-6 * elements / seconds:.2f} M elements/s")


numbers = tf.data.Dataset.range(count)
measure("range.batch(1024)", numbers.batch(1024), count)
measure("range.map.batch(1024)", numbers.map(lambda x: x * 2).batch(1024), count)
measure("range.map(AUTOTUNE)...", numbers.map(lambda x: x * 2, num_parallel_calls=tf.data.AUTOTUNE).batch(1024), count)
rows = tf.data.Dataset.from_tensor_slices(tf.zeros((count // 16, 16)))
measure("slices.map.batch(1024)", rows.map(lambda x: x + 0).batch(1024), count // 16)

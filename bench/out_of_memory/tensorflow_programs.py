"""Two training programs that run out of memory in TensorFlow, as users write them.

  python tensorflow_programs.py whole-batch MIB    Fashion-MNIST's 60,000 images as one batch
  python tensorflow_programs.py loop MIB           a layer that adds up 100 terms, batch 4,096

MIB caps how much resident memory the process may add once the framework is loaded and the model is
built, so that the framework's own size is not held against it. A watcher ends the process with 137
when it passes the cap, as a container of that size would. (Under RLIMIT_AS TensorFlow crashes on
the first program and waits for ever, at no CPU, on the second.)
"""
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
import tensorflow as tf
from keras import layers

program, room = sys.argv[1], int(sys.argv[2])


class AddUp(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 512), initializer="glorot_uniform")

    def call(self, x):
        product = x @ self.kernel
        total = tf.tanh(product)
        for i in range(1, 100):
            total = total + tf.tanh(product * (1.0 + i / 100.0))
        return total / 100.0


def cnn():
    return keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(),
        layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")])


def loop():
    return keras.Sequential([keras.Input((64,)), AddUp(), layers.Dense(10, activation="softmax")])


def status(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) // 1024


model, batch, shape = (cnn(), 60000, (28, 28, 1)) if program == "whole-batch" else (loop(), 4096, (64,))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
rng = np.random.default_rng(0)
small = rng.random((8,) + shape, dtype=np.float32)
model.train_on_batch(small, np.zeros(8, np.int32))  # everything is loaded and traced
x, y = rng.random((batch,) + shape, dtype=np.float32), (np.arange(batch) % 10).astype(np.int32)
before = status("VmHWM")


def watch(limit):
    while status("VmRSS") <= limit:
        time.sleep(0.002)
    print("killed: resident memory passed the cap", flush=True)
    os._exit(137)


threading.Thread(target=watch, args=(status("VmRSS") + room,), daemon=True).start()
for step in range(3):
    print("step", step + 1, "loss", float(model.train_on_batch(x, y)), flush=True)
print("added at the peak: %d MiB" % (status("VmHWM") - before))

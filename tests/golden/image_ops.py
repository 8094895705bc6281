"""What tf.image makes of small images: python image_ops.py > image_ops.json. Inputs are counter_hash's."""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

import counter_hash


def image(salt, shape):
    return (counter_hash.hashes(salt, int(np.prod(shape))) % np.uint32(256)).astype(np.uint8).reshape(shape)


answers = {"made_by": "tests/golden/image_ops.py", "tensorflow": tf.__version__, "resize": [], "color": [], "rotate": []}
for salt, (shape, size) in enumerate([((7, 9, 3), (5, 4)), ((6, 8, 3), (3, 4)), ((5, 4, 1), (11, 7)), ((16, 12, 3), (5, 12))]):
    x = image(salt, shape)
    for method in ("bilinear", "area", "bicubic"):
        for antialias in (False, True):
            if method == "area" and antialias:
                continue
            y = tf.image.resize(x.astype(np.float32), size, method=method, antialias=antialias).numpy()
            answers["resize"].append({"salt": salt, "in": list(shape), "out": list(size), "method": method, "antialias": antialias, "y": [float(np.float32(v)) for v in y.ravel()]})
x = image(20, (4, 5, 3))
for name, amount in (("brightness", 0.2), ("brightness", -0.35), ("contrast", 1.7), ("contrast", 0.4), ("saturation", 0.3), ("saturation", 1.9), ("hue", 0.15), ("hue", -0.4)):
    change = getattr(tf.image, "adjust_" + name)
    whole = change(x, amount).numpy()
    real = change(tf.constant(x.astype(np.float32) / np.float32(255)), amount).numpy()
    answers["color"].append({"name": name, "amount": amount, "bytes": [int(v) for v in whole.ravel()], "reals": [float(np.float32(v)) for v in real.ravel()]})
# Rotation against the clock around the middle, as a projective transform of places.
for salt, shape, angle, fill in ((30, (7, 9, 3), 0.4, 0.0), (31, (6, 6, 1), -1.1, 90.0), (32, (5, 8, 3), 2.9, 255.0)):
    x = image(salt, shape)
    cos, sin, my, mx = np.cos(angle), np.sin(angle), (shape[0] - 1) / 2, (shape[1] - 1) / 2
    places = [cos, -sin, mx - cos * mx + sin * my, sin, cos, my - sin * mx - cos * my, 0, 0]
    y = tf.raw_ops.ImageProjectiveTransformV3(images=x[None].astype(np.float32), transforms=np.float32([places]), output_shape=shape[:2],
                                              interpolation="BILINEAR", fill_mode="CONSTANT", fill_value=fill).numpy()
    answers["rotate"].append({"salt": salt, "in": list(shape), "angle": angle, "fill": fill, "y": [float(np.float32(v)) for v in y.ravel()]})
json.dump(answers, sys.stdout, separators=(",", ":"))
print()

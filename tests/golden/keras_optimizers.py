"""Writes keras_optimizers.json: weights after 20 steps of every optimiser of Keras, and schedules.

    python keras_optimizers.py        # with KERAS_BACKEND=tensorflow, which it sets itself

Weights and gradients come from a counter hash; src/train/optimizer_test.cc computes the same numbers.
Stored for each case: the weights after 20 steps in float64 and float32, one behind the other, and for
loss scaling the scale after each step. Run with Keras 3.15.1 and TensorFlow.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import optimizers as o
from keras.optimizers import schedules as s

from keras.src.backend.tensorflow import core

from counter_hash import real

# With TensorFlow Keras takes Python's numbers for float32 and rounds them, even where it computes in
# float64; with other backends it does not.
plain_cast, plain_convert = core.cast, core.convert_to_tensor
core.cast = lambda x, dtype: (
    plain_convert(x, dtype) if isinstance(x, (int, float)) else plain_cast(x, dtype))
core.convert_to_tensor = lambda x, dtype=None, sparse=None, ragged=None: plain_convert(
    x, keras.backend.floatx() if dtype is None and isinstance(x, float) else dtype, sparse, ragged)

STEPS = 20
# Path and shape of each weight; its gradients get one weight's place for a salt.
# Decay rates are powers of two, which TensorFlow does not round either.
WEIGHTS = [("dense/bias", (5,)), ("dense/kernel", (3, 4)), ("tall/kernel", (5, 3)),
           ("conv/kernel", (2, 3, 2, 3)), ("embedding/embeddings", (4, 2))]


def adamw_without_biases(**options):
    optimizer = o.AdamW(**options)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


CASES = {
    "sgd": lambda: o.SGD(),
    "sgd_momentum": lambda: o.SGD(0.1, momentum=0.9),
    "sgd_nesterov": lambda: o.SGD(0.1, momentum=0.8, nesterov=True, weight_decay=0.0078125),
    "rmsprop": lambda: o.RMSprop(),
    "rmsprop_momentum": lambda: o.RMSprop(0.01, rho=0.8, momentum=0.5),
    "rmsprop_centered": lambda: o.RMSprop(0.01, momentum=0.5, centered=True, epsilon=1e-3),
    "adam": lambda: o.Adam(),
    "adam_amsgrad": lambda: o.Adam(0.01, beta_1=0.8, beta_2=0.95, amsgrad=True),
    "adamw": lambda: o.AdamW(0.01),
    "adamw_excluded": lambda: adamw_without_biases(learning_rate=0.05, weight_decay=0.5),
    "adamax": lambda: o.Adamax(0.01),
    "nadam": lambda: o.Nadam(0.01),
    "adagrad": lambda: o.Adagrad(0.05),
    "adadelta": lambda: o.Adadelta(1.0),
    "adafactor": lambda: o.Adafactor(),
    "adafactor_options": lambda: o.Adafactor(0.1, beta_2_decay=-0.6, clip_threshold=0.5,
                                             weight_decay=0.0078125, clipvalue=0.2),
    "lion": lambda: o.Lion(),
    "lion_options": lambda: o.Lion(0.01, beta_1=0.7, beta_2=0.9, weight_decay=0.125),
    "lamb": lambda: o.Lamb(0.01),
    "lamb_options": lambda: o.Lamb(0.05, weight_decay=0.125, clipnorm=0.3),
    "muon": lambda: o.Muon(0.01),
    "muon_options": lambda: o.Muon(0.02, exclude_layers=["tall"], exclude_embeddings=False,
                                   nesterov=False, rms_rate=None, adam_lr_ratio=0.5,
                                   weight_decay=None, ns_steps=3),
    "ftrl": lambda: o.Ftrl(0.1),
    "ftrl_options": lambda: o.Ftrl(0.1, learning_rate_power=-0.7, l1_regularization_strength=0.01,
                                   l2_regularization_strength=0.1,
                                   l2_shrinkage_regularization_strength=0.05, beta=0.2),
    "clipnorm": lambda: o.SGD(0.1, momentum=0.9, clipnorm=0.4),
    "clipvalue": lambda: o.RMSprop(0.01, clipvalue=0.1),
    "global_clipnorm": lambda: o.Adam(0.01, global_clipnorm=0.5),
    "global_clipnorm_large": lambda: o.SGD(0.1, global_clipnorm=100.0),
    "ema": lambda: o.Adam(0.05, use_ema=True, ema_momentum=0.7),
    "ema_overwrite": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=3),
    "accumulation": lambda: o.Adam(0.05, gradient_accumulation_steps=3),
    "accumulation_clip": lambda: o.Nadam(0.05, gradient_accumulation_steps=3, weight_decay=0.125,
                                         global_clipnorm=0.3),
    "accumulation_ema": lambda: o.SGD(0.1, momentum=0.9, gradient_accumulation_steps=4, clipnorm=0.2,
                                      use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2),
    "accumulation_muon": lambda: o.Muon(0.05, gradient_accumulation_steps=2),
    "accumulation_adafactor": lambda: o.Adafactor(0.1, gradient_accumulation_steps=2,
                                                  global_clipnorm=0.5),
    "loss_scale_factor": lambda: o.Adagrad(0.1, loss_scale_factor=3.0),
    "schedule": lambda: o.Adam(s.CosineDecay(0.001, 10, alpha=0.1, warmup_target=0.05,
                                             warmup_steps=6), weight_decay=0.125),
    "accumulation_schedule": lambda: o.SGD(s.ExponentialDecay(0.1, 5, 0.5),
                                           gradient_accumulation_steps=2),
}

SCHEDULES = {
    "exponential": lambda: s.ExponentialDecay(0.1, 7, 0.9),
    "exponential_staircase": lambda: s.ExponentialDecay(0.1, 7, 0.9, staircase=True),
    "piecewise": lambda: s.PiecewiseConstantDecay([5, 11], [1.0, 0.5, 0.1]),
    "polynomial": lambda: s.PolynomialDecay(0.1, 20, 0.01, power=0.5),
    "polynomial_cycle": lambda: s.PolynomialDecay(0.1, 7, power=2.0, cycle=True),
    "inverse_time": lambda: s.InverseTimeDecay(0.1, 7, 0.5),
    "inverse_time_staircase": lambda: s.InverseTimeDecay(0.1, 7, 0.5, staircase=True),
    "cosine": lambda: s.CosineDecay(0.1, 20, alpha=0.05),
    "cosine_warmup": lambda: s.CosineDecay(0.0, 20, warmup_target=0.1, warmup_steps=8),
    "restarts": lambda: s.CosineDecayRestarts(0.1, 7, t_mul=1.5, m_mul=0.8, alpha=0.01),
    "restarts_equal": lambda: s.CosineDecayRestarts(0.1, 9, t_mul=1.0, m_mul=0.9),
}


def make_weights(dtype):
    weights = []
    for salt, (path, shape) in enumerate(WEIGHTS):
        layer, name = path.split("/")
        with keras.name_scope(layer):
            value = real(salt, shape, 0).astype(dtype)
            weights.append(keras.Variable(value, dtype=dtype, name=name))
    return weights


def gradients(step, dtype):
    return [keras.ops.convert_to_tensor(real(100 * step + salt, shape, -2).astype(dtype))
            for salt, (_, shape) in enumerate(WEIGHTS)]


def flat(weights, digits):
    values = np.concatenate([keras.ops.convert_to_numpy(w).ravel() for w in weights])
    return [float("%.*g" % (digits, v)) for v in values.astype(np.float64)]


def run(make, dtype, name):
    keras.backend.set_floatx(dtype)
    weights, optimizer = make_weights(dtype), make()
    for step in range(1, STEPS + 1):
        optimizer.apply(gradients(step, dtype), weights)
    if name == "ema":
        optimizer.finalize_variable_values(weights)
    return flat(weights, 17 if dtype == "float64" else 9)


def overflow(dtype):
    """Gradients times the scale, as a scaled loss has them; some are not finite."""
    keras.backend.set_floatx(dtype)
    weights = make_weights(dtype)
    optimizer = o.LossScaleOptimizer(o.Adam(s.ExponentialDecay(0.1, 5, 0.5)), initial_scale=64.0,
                                     dynamic_growth_steps=4)
    optimizer.build(weights)
    scales = []
    for step in range(1, STEPS + 1):
        scale = float(optimizer.dynamic_scale.numpy())
        scaled = [g * scale for g in gradients(step, dtype)]
        if step in (3, 4, 13):
            scaled[step % len(scaled)] = scaled[step % len(scaled)] * np.inf
        optimizer.apply(scaled, weights)
        scales.append(float(optimizer.dynamic_scale.numpy()))
    return {"scales": scales, dtype: flat(weights, 17 if dtype == "float64" else 9)}


def main():
    answers = {"steps": STEPS, "cases": {}, "schedules": {}}
    for name, make in CASES.items():
        answers["cases"][name] = {d: run(make, d, name) for d in ("float64", "float32")}
    keras.backend.set_floatx("float64")
    for name, make in SCHEDULES.items():
        schedule = make()
        answers["schedules"][name] = [float(schedule(step)) for step in range(40)]
    answers["overflow"] = {**overflow("float32"), **overflow("float64")}
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(answers, indent=None, separators=(",", ":")).replace('},"', '},\n"')
                    .replace('],"', '],\n"') + "\n")


main()

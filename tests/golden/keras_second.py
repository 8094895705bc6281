"""Writes keras_second.json: slopes of a gradient penalty through batch normalisation, as Keras computes them with JAX.

    KERAS_BACKEND=jax python keras_second.py > keras_second.json

The penalty is WGAN-GP's. For each trainable weight there is the sum of the slopes' absolute values. TensorFlow's are
others: its moments stop the gradient of the mean. Weights and data are those of keras_programs.py. Run with Keras 3.15.1
and JAX 0.10.2.
"""

import json

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import layers


def wave(shape, phase, amplitude=1.0):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return (amplitude * np.sin(12.9898 * (i + 1) + phase)).astype(np.float32).reshape(shape)


def main():
    critic = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(8, 5, strides=2, padding="same"), layers.LeakyReLU(0.2),
                               layers.Conv2D(8, 5, strides=2, padding="same"), layers.BatchNormalization(), layers.LeakyReLU(0.2),
                               layers.Flatten(), layers.Dense(1)])
    for k, w in enumerate(critic.weights):
        if len(w.shape) >= 2:
            w.assign(wave(tuple(w.shape), float(k), 0.3))
    x = jnp.asarray(wave((8, 8, 8, 1), 0))
    trained = [v.value for v in critic.trainable_variables]
    state = [v.value for v in critic.non_trainable_variables]
    score = lambda x, trained: critic.stateless_call(trained, state, x, training=True)[0].sum()

    def penalty(trained):
        slope = jax.grad(score)(x, trained)
        return jnp.mean((jnp.sqrt(jnp.sum(slope**2, (1, 2, 3))) - 1) ** 2)

    slopes = [float(f"{np.abs(np.asarray(g, np.float64)).sum():.7g}") for g in jax.grad(penalty)(trained)]
    print(json.dumps({"penalty": float(f"{penalty(trained):.7g}"), "slopes": slopes}))


main()

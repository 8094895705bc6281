import tensorflow as tf
from common import SEED, keras, noise, np

LENGTH, CLASSES, COUNT = 64, 4, 2048


def waves():
    t = np.arange(LENGTH)
    for index in np.random.default_rng([SEED, waves.epoch]).permutation(COUNT):
        label = index % CLASSES
        values, _ = noise((int(index) * 2654435761) & 0xFFFFFFFF, LENGTH)
        wave = np.sin(6.283185307 * ((label + 1) * t / LENGTH + 0.618 * index)).astype("float32")
        yield (wave + 3 * (values - np.float32(0.5)))[:, None], np.int32(label)
    waves.epoch += 1


waves.epoch = 0
data = tf.data.Dataset.from_generator(waves, output_signature=(
    tf.TensorSpec((LENGTH, 1), tf.float32), tf.TensorSpec((), tf.int32))).batch(64)
layers = keras.layers
model = keras.Sequential([
    layers.Input((LENGTH, 1)), layers.Conv1D(16, 9, strides=2, activation="relu"),
    layers.Conv1D(16, 9, strides=2, activation="relu"), layers.GlobalAveragePooling1D(),
    layers.Dense(CLASSES, activation="softmax")])
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(data, epochs=8, verbose=0)
print(f"accuracy {model.evaluate(data, verbose=0)[1]:.4f}")

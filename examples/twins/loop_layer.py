from common import keras, np

BATCH, WIDTH, TERMS = 4096, 512, 100


class AddUp(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], WIDTH), initializer="glorot_uniform")

    def call(self, x):
        product = x @ self.kernel
        total = keras.ops.tanh(product)
        for i in range(1, TERMS):
            total += keras.ops.tanh(product * (1.0 + i / 100.0))
        return total / TERMS


i, j = np.arange(BATCH)[:, None], np.arange(64)
x, y = ((i * 31 + j * 17) % 97 / 97).astype("float32"), (np.arange(BATCH) % 10).astype("int32")
model = keras.Sequential([AddUp(), keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
print(f"loss {model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history['loss'][-1]:.4f}")

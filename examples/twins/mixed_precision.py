from common import SEED, keras, noise, np

COUNT = 1024
at = np.arange(256)
values, _ = noise(1, COUNT * 256)
i = np.arange(COUNT)[:, None]
stripes = ((at // 16 + at % 16 + i // 4) % (2 + i % 4) == 0).astype("float32")
x = (stripes + 2 * values.reshape(COUNT, 256)).astype("float32").reshape(COUNT, 16, 16, 1)
y = (np.arange(COUNT) % 4).astype("int32")
layers = keras.layers
for policy in ["float32", "mixed_float16", "mixed_bfloat16"]:
    keras.utils.set_random_seed(SEED)
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([
        layers.Input((16, 16, 1)), layers.Conv2D(16, 3, activation="relu"), layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(4), layers.Activation("softmax", dtype="float32")])
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    loss = model.fit(x, y, batch_size=128, epochs=8, verbose=0).history["loss"][-1]
    print(f"{policy}: loss {loss:.4f}, accuracy {model.evaluate(x, y, verbose=0)[1]:.4f}")

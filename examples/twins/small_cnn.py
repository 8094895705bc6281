from common import fashion_mnist, keras

(x, y), (tx, ty) = fashion_mnist("train"), fashion_mnist("t10k")
x, y = x[:6000], y[:6000]
layers = keras.layers
model = keras.Sequential([
    layers.Input((28, 28, 1)), layers.Rescaling(1 / 255), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(2),
    layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2), layers.Conv2D(32, 3, activation="relu"),
    layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, y, batch_size=64, epochs=5, verbose=0)
print(f"test accuracy {model.evaluate(tx, ty, batch_size=64, verbose=0)[1]:.4f}")

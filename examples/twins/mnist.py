from common import fashion_mnist, keras

(x, y), (tx, ty) = fashion_mnist("train"), fashion_mnist("t10k")
layers = keras.layers
model = keras.Sequential([
    layers.Input((28, 28, 1)), layers.Rescaling(1 / 255), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
    layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(),
    layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=128, verbose=0)
print(f"test accuracy {model.evaluate(tx, ty, batch_size=128, verbose=0)[1]:.4f}")

from common import fashion_mnist, keras

(x, y), (tx, ty) = fashion_mnist("train"), fashion_mnist("t10k")
model = keras.Sequential([keras.layers.Input((28, 28, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten(),
                          keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=128, epochs=3, verbose=0)
print(f"test accuracy {model.evaluate(tx, ty, batch_size=128, verbose=0)[1]:.4f}")

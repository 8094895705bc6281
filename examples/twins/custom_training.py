import tensorflow as tf
from common import SEED, np

i = np.arange(1024)
radius, angle = np.sqrt(i % 97 / 97) * 2, 2.4 * i
x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype("float32")
y = (radius < 1.2).astype("int32")


def weight(shape):
    return tf.Variable((np.sin(12.9898 * (np.arange(np.prod(shape)) + 1) + SEED) * 2).reshape(shape).astype("float32"))


w1, w2, b1, b2 = weight((2, 32)), weight((32, 2)), weight((32,)), tf.Variable(tf.zeros(2))
weights = [w1, b1, w2, b2]


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = tf.tanh(x @ w1 + b1) @ w2 + b2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    for variable, gradient in zip(weights, tape.gradient(loss, weights)):
        variable.assign_sub(0.5 * gradient)
    return loss


for epoch in range(1, 61):
    total = sum(float(train_step(a, b)) for a, b in tf.data.Dataset.from_tensor_slices((x, y)).batch(64))
    if epoch % 20 == 0:
        print(f"epoch {epoch}: loss {total / 16:.4f}")

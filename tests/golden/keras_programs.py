"""Writes keras_programs.json: whole programs as people write them with Keras, after the examples of keras.io.

    python keras_programs.py > keras_programs.json

Data and weights are sines, batches come in order, nothing is random: what is stored are the figures that each program
shows. Weights are set in the order in which layers are first called, which is tests/end_to_end/keras_programs_test.cc's,
where the same programs are written with Plimsoll. Run with Keras 3.15.1 and TensorFlow 2.21.
"""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

FIT = dict(verbose=0, shuffle=False)


def wave(shape, phase, amplitude=1.0):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return (amplitude * np.sin(12.9898 * (i + 1) + phase)).astype(np.float32).reshape(shape)


def labels(n, classes):
    i = np.arange(n)
    return ((i * 7 + 3 + i // 5) % classes).astype(np.int32)


def tokens(shape, vocabulary):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((i * i + 3 * i + i // 7) % vocabulary).astype(np.int32).reshape(shape)


def settle(model, order=None):
    weights = model.weights if order is None else order
    for k, w in enumerate(w for w in weights if "seed_generator" not in w.path):
        if len(w.shape) >= 2:
            w.assign(wave(tuple(w.shape), float(k), 0.3))


def total(x):
    return float(np.asarray(x, np.float64).sum())


def weight_sum(*models):
    return sum(float(np.abs(np.asarray(w.numpy(), np.float64)).sum())
               for m in models for w in m.weights if "seed_generator" not in w.path)


def shown(history, *names):
    return {k: [float(v) for v in history.history[k]] for k in (names or history.history)}


def apply(optimizer, tape, loss, weights):
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_var = inputs
        return mean + ops.exp(0.5 * log_var) * ops.sin(mean * 50.0)


class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.total, self.kl = keras.metrics.Mean(name="total_loss"), keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total, self.kl]

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(x)
            p = ops.clip(self.decoder(z), 1e-7, 1 - 1e-7)
            bce = -(x * ops.log(p) + (1 - x) * ops.log(1 - p))
            kl = ops.mean(ops.sum(-0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var)), axis=1))
            loss = ops.mean(ops.sum(ops.mean(bce, -1), axis=(1, 2))) + kl
        apply(self.optimizer, tape, loss, self.trainable_weights)
        self.total.update_state(loss)
        self.kl.update_state(kl)
        return {"loss": self.total.result(), "kl_loss": self.kl.result()}


def vae():
    i = keras.Input((12, 12, 1))
    x = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(i)
    x = layers.Dense(8, activation="relu")(layers.Flatten()(x))
    mean, log_var = layers.Dense(2, name="z_mean")(x), layers.Dense(2, name="z_log_var")(x)
    encoder = keras.Model(i, [mean, log_var, Sampling()([mean, log_var])])
    z = keras.Input((2,))
    x = layers.Reshape((6, 6, 4))(layers.Dense(6 * 6 * 4, activation="relu")(z))
    decoder = keras.Model(z, layers.Conv2DTranspose(1, 3, strides=2, activation="sigmoid", padding="same")(x))
    settle(encoder)
    settle(decoder)
    model = VAE(encoder, decoder)
    model.compile(optimizer=keras.optimizers.Adam())
    h = model.fit(wave((20, 12, 12, 1), 0, 0.5) + np.float32(0.5), batch_size=8, epochs=3, **FIT)
    return dict(shown(h), predict=total(decoder.predict(wave((3, 2), 1), verbose=0)))


class WGAN(keras.Model):
    def __init__(self, critic, generator):
        super().__init__()
        self.critic, self.generator = critic, generator
        self.d, self.g = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    @property
    def metrics(self):
        return [self.d, self.g]

    def penalty(self, real, fake):
        alpha = ops.reshape(ops.arange(8, dtype="float32") / 8, (8, 1, 1, 1))
        between = real + alpha * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            score = self.critic(between, training=True)
        slope = tape.gradient(score, between)
        return ops.mean(ops.square(ops.sqrt(ops.sum(ops.square(slope), axis=(1, 2, 3))) - 1.0))

    def train_step(self, data):
        real, noise = data
        with tf.GradientTape() as tape:
            fake = self.generator(noise, training=True)
            d_loss = ops.mean(self.critic(fake, training=True)) - ops.mean(self.critic(real, training=True))
            d_loss = d_loss + 10.0 * self.penalty(real, fake)
        apply(self.d_optimizer, tape, d_loss, self.critic.trainable_weights)
        with tf.GradientTape() as tape:
            g_loss = -ops.mean(self.critic(self.generator(noise, training=True), training=True))
        apply(self.g_optimizer, tape, g_loss, self.generator.trainable_weights)
        self.d.update_state(d_loss)
        self.g.update_state(g_loss)
        return {"d_loss": self.d.result(), "g_loss": self.g.result()}


def wgan_gp():
    """Second derivatives. Not through batch normalisation: TensorFlow's moments stop the gradient of the mean, which
    is right for first derivatives alone; keras_second.py has these, by JAX."""
    critic = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(8, 5, strides=2, padding="same"), layers.LeakyReLU(0.2),
                               layers.Conv2D(8, 5, strides=2, padding="same"), layers.LeakyReLU(0.2),
                               layers.Flatten(), layers.Dense(1)])
    generator = keras.Sequential([keras.Input((6,)), layers.Dense(64, use_bias=False), layers.BatchNormalization(),
                                  layers.LeakyReLU(0.2), layers.Reshape((2, 2, 16)), layers.UpSampling2D((2, 2)),
                                  layers.Conv2D(8, 3, padding="same", use_bias=False), layers.BatchNormalization(),
                                  layers.LeakyReLU(0.2), layers.UpSampling2D((2, 2)),
                                  layers.Conv2D(1, 3, padding="same", activation="tanh")])
    settle(critic)
    settle(generator)
    model = WGAN(critic, generator)
    adam = lambda: keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9)
    model.compile(adam(), adam())
    h = model.fit(wave((32, 8, 8, 1), 0), wave((32, 6), 1), batch_size=8, epochs=2, **FIT)
    return dict(shown(h), weights=weight_sum(critic, generator))


def siamese():
    i = keras.Input((12, 12, 1))
    x = layers.BatchNormalization()(i)
    x = layers.AveragePooling2D((2, 2))(layers.Conv2D(4, (5, 5), activation="tanh")(x))
    x = layers.Dense(10, activation="tanh")(layers.BatchNormalization()(layers.Flatten()(x)))
    tower = keras.Model(i, x)
    a, b = keras.Input((12, 12, 1)), keras.Input((12, 12, 1))
    far = layers.Lambda(lambda v: ops.sqrt(ops.maximum(ops.sum(ops.square(v[0] - v[1]), axis=1, keepdims=True), 1e-7)),
                        output_shape=(1,))([tower(a), tower(b)])
    model = keras.Model([a, b], layers.Dense(1, activation="sigmoid")(layers.BatchNormalization()(far)))
    settle(model)
    contrastive = lambda y, p: ops.mean((1 - y) * ops.square(p) + y * ops.square(ops.maximum(1.0 - p, 0)))
    model.compile("RMSprop", contrastive, metrics=["accuracy"])
    left, right = wave((48, 12, 12, 1), 0), wave((48, 12, 12, 1), 2)
    y = np.array([float((k * 5 + 1) % 3 == 0) for k in range(48)], np.float32)
    h = model.fit([left, right], y, batch_size=16, epochs=3, validation_data=([right, left], y), **FIT)
    return dict(shown(h), predict=total(model.predict([left, right], verbose=0)))


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.distilled = keras.metrics.Mean(name="distillation_loss")

    def call(self, x):
        return self.student(x)

    def train_step(self, data):
        x, y = data
        teacher = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            distilled = keras.losses.KLDivergence()(ops.softmax(teacher / 10, axis=1), ops.softmax(p / 10, axis=1)) * 100
            loss = 0.1 * self.compute_loss(x=x, y=y, y_pred=p) + 0.9 * distilled
        apply(self.optimizer, tape, loss, self.student.trainable_variables)
        self.distilled.update_state(distilled)
        return dict(self.compute_metrics(x, y, p), distillation_loss=self.distilled.result())


def distillation():
    net = lambda a, b: keras.Sequential([
        keras.Input((14, 14, 1)), layers.Conv2D(a, (3, 3), strides=(2, 2), padding="same"), layers.LeakyReLU(0.2),
        layers.MaxPooling2D((2, 2), strides=(1, 1), padding="same"), layers.Conv2D(b, (3, 3), strides=(2, 2), padding="same"),
        layers.Flatten(), layers.Dense(10)])
    teacher, student = net(16, 16), net(4, 8)
    settle(teacher)
    settle(student)
    x, y = wave((60, 14, 14, 1), 0), labels(60, 10)
    settings = lambda: (keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    teacher.compile(*settings())
    h = teacher.fit(x, y, batch_size=20, epochs=2, **FIT)
    model = Distiller(student, teacher)
    model.compile(*settings(), metrics=[keras.metrics.SparseCategoricalAccuracy()])
    d = model.fit(x, y, batch_size=20, epochs=3, **FIT)
    return dict(shown(h), **shown(d, "distillation_loss", "sparse_categorical_accuracy"), weights=weight_sum(student, teacher))


def seq2seq():
    t, s, v, units = 6, 7, 9, 12
    encoder_in, decoder_in = keras.Input((t, v)), keras.Input((s, v))
    _, h, c = layers.LSTM(units, return_state=True)(encoder_in)
    lstm, dense = layers.LSTM(units, return_sequences=True, return_state=True), layers.Dense(v, activation="softmax")
    out, _, _ = lstm(decoder_in, initial_state=[h, c])
    model = keras.Model([encoder_in, decoder_in], dense(out))
    settle(model)
    model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
    hot = lambda shape, k: np.eye(v, dtype=np.float32)[tokens(shape, k)]
    ex, dx, dy = hot((40, t), 9), hot((40, s), 8), hot((40, s), 7)
    history = model.fit([ex, dx], dy, batch_size=16, epochs=3, validation_split=0.2, **FIT)
    encoder = keras.Model(encoder_in, [h, c])
    one, ih, ic = keras.Input((1, v)), keras.Input((units,)), keras.Input((units,))
    out, sh, sc = lstm(one, initial_state=[ih, ic])
    decoder = keras.Model([one, ih, ic], [dense(out), sh, sc])
    states, target, steps = encoder.predict(ex, verbose=0), hot((40, 1), 5), []
    for _ in range(3):
        p, *states = decoder.predict([target, *states], verbose=0)
        steps.append(total(p.max(-1)))
        target = np.eye(v, dtype=np.float32)[p.argmax(-1)]
    return dict(shown(history), steps=steps, state=total(states[0]))


def transfer():
    i = keras.Input((16, 16, 3))
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", name="first")(i))
    x = layers.Conv2D(8, 3, padding="same")(layers.MaxPooling2D()(layers.ReLU()(x)))
    base = keras.Model(i, layers.ReLU()(layers.BatchNormalization()(x)))
    settle(base)
    base.trainable = False
    i = keras.Input((16, 16, 3))
    x = layers.GlobalAveragePooling2D()(base(layers.Rescaling(2.0, -0.5)(i), training=False))
    head = layers.Dense(1)
    model = keras.Model(i, head(x))
    settle(model, [w for l in base.layers for w in l.weights] + list(head.weights))
    data, y = wave((48, 16, 16, 3), 0), labels(48, 2).astype(np.float32)
    answers = {}
    for stage, rate in [("head", 1e-3), ("fine", 1e-5)]:
        model.compile(keras.optimizers.Adam(rate), keras.losses.BinaryCrossentropy(from_logits=True),
                      metrics=[keras.metrics.BinaryAccuracy(threshold=0.5)])
        h = model.fit(data, y, batch_size=16, epochs=2, **FIT)
        answers.update({f"{stage}_{k}": v for k, v in shown(h).items()})
        base.trainable = True
        for layer in base.layers:  # training=False above would do for the norms, but Keras forgets it
            layer.trainable = layer.name != "first" and not isinstance(layer, layers.BatchNormalization)
    return dict(answers, weights=weight_sum(model))


class MixUp(keras.Sequential):
    def train_step(self, data):
        x, y = data
        share = ops.reshape(ops.linspace(0.1, 0.9, 16), (-1, 1))
        of_x = ops.reshape(share, (-1, 1, 1, 1))
        return super().train_step((of_x * x + (1 - of_x) * ops.flip(x, axis=0), share * y + (1 - share) * ops.flip(y, axis=0)))


def mixup():
    model = MixUp([keras.Input((14, 14, 1)), layers.Conv2D(8, 3, activation="gelu"), layers.GlobalMaxPooling2D(), layers.Dense(10)])
    settle(model)
    model.compile(keras.optimizers.AdamW(2e-3, weight_decay=1e-2),
                  keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), metrics=["accuracy"])
    hot = np.eye(10, dtype=np.float32)
    return shown(model.fit(wave((64, 14, 14, 1), 0), hot[labels(64, 10)], batch_size=16, epochs=3,
                           validation_data=(wave((20, 14, 14, 1), 1), hot[labels(20, 10)]), **FIT))


def callbacks():
    model = keras.Sequential([layers.Dense(16, activation="relu", kernel_regularizer="l2"), layers.Dense(3, activation="softmax")])
    model.build((None, 8))
    settle(model)
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    c = keras.callbacks
    h = model.fit(wave((90, 8), 0), labels(90, 3), batch_size=10, epochs=25, validation_data=(wave((30, 8), 5), labels(30, 3)),
                  callbacks=[c.EarlyStopping(monitor="val_loss", patience=6, restore_best_weights=True),
                             c.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=2, min_lr=1e-4),
                             c.LearningRateScheduler(lambda epoch, rate: rate if epoch < 2 else rate * 0.99)], **FIT)
    return dict(shown(h), weights=weight_sum(model))


class EncoderBlock(layers.Layer):
    def __init__(self, embed):
        super().__init__()
        self.norm_1, self.dense = layers.LayerNormalization(), layers.Dense(embed, activation="relu")
        self.attention = layers.MultiHeadAttention(1, embed)
        self.norm_2 = layers.LayerNormalization()

    def call(self, x, training=False):
        x = self.dense(self.norm_1(x))
        return self.norm_2(x + self.attention(query=x, value=x, key=x, attention_mask=None, training=training))


class PositionalEmbedding(layers.Layer):
    def __init__(self, length, words, embed):
        super().__init__()
        self.tokens, self.positions = layers.Embedding(words, embed), layers.Embedding(length, embed)
        self.scale = float(embed) ** 0.5

    def call(self, x):
        tokens = self.tokens(x) * self.scale
        return tokens + self.positions(ops.arange(x.shape[-1]))

    def compute_mask(self, x, mask=None):
        return ops.not_equal(x, 0)


class DecoderBlock(layers.Layer):
    def __init__(self, embed, ff, heads, length, words):
        super().__init__()
        self.embedding = PositionalEmbedding(length, words, embed)
        self.attention_1, self.norm_1 = layers.MultiHeadAttention(heads, embed), layers.LayerNormalization()
        self.attention_2, self.norm_2 = layers.MultiHeadAttention(heads, embed), layers.LayerNormalization()
        self.ffn_1, self.ffn_2 = layers.Dense(ff, activation="relu"), layers.Dense(embed)
        self.norm_3, self.out = layers.LayerNormalization(), layers.Dense(words, activation="softmax")
        self.supports_masking = True

    def call(self, words, encoded, training=False, mask=None):
        x = self.embedding(words)
        i = ops.arange(x.shape[1])
        causal = ops.cast(ops.expand_dims(i, 1) >= i, "int32")
        padding = ops.cast(mask[:, :, None], "int32")
        combined = ops.minimum(ops.cast(mask[:, None, :], "int32"), causal)
        x = self.norm_1(x + self.attention_1(query=x, value=x, key=x, attention_mask=combined, training=training))
        y = self.attention_2(query=x, value=encoded, key=encoded, attention_mask=padding, training=training)
        x = self.norm_2(x + y)
        return self.out(self.norm_3(self.ffn_2(self.ffn_1(x)) + x))


class Captioning(keras.Model):
    """Three captions for an image: three updates in one train_step."""

    def __init__(self, cnn, encoder, decoder, captions):
        super().__init__()
        self.cnn, self.encoder, self.decoder, self.captions = cnn, encoder, decoder, captions
        self.loss_tracker, self.acc_tracker = keras.metrics.Mean(name="loss"), keras.metrics.Mean(name="accuracy")

    @property
    def metrics(self):
        return [self.loss_tracker, self.acc_tracker]

    def loss_and_accuracy(self, image, words, training):
        encoded = self.encoder(image, training=training)
        given, true = words[:, :-1], words[:, 1:]
        mask = ops.not_equal(true, 0)
        p = self.decoder(given, encoded, training=training, mask=mask)
        counts = ops.cast(mask, "float32")
        loss = self.loss(true, p) * counts
        right = ops.logical_and(mask, ops.equal(ops.cast(true, "int64"), ops.cast(ops.argmax(p, axis=2), "int64")))
        return ops.sum(loss) / ops.sum(counts), ops.sum(ops.cast(right, "float32")) / ops.sum(counts)

    def figures(self, total, accuracy):
        self.loss_tracker.update_state(total)
        self.acc_tracker.update_state(accuracy / float(self.captions))
        return {"loss": self.loss_tracker.result(), "acc": self.acc_tracker.result()}

    def train_step(self, data):
        images, words = data
        total = accuracy = 0
        embedded = self.cnn(images)
        for i in range(self.captions):
            with tf.GradientTape() as tape:
                loss, acc = self.loss_and_accuracy(embedded, words[:, i, :], True)
            total, accuracy = total + loss, accuracy + acc
            apply(self.optimizer, tape, loss, self.encoder.trainable_variables + self.decoder.trainable_variables)
        return self.figures(total, accuracy)

    def test_step(self, data):
        images, words = data
        total = accuracy = 0
        embedded = self.cnn(images)
        for i in range(self.captions):
            loss, acc = self.loss_and_accuracy(embedded, words[:, i, :], False)
            total, accuracy = total + loss, accuracy + acc
        return self.figures(total, accuracy)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = ops.cast(step, "float32")
        return ops.where(step < 4, 0.1 * step / 4, 0.1)


def captioning():
    words, length, embed = 11, 7, 8
    cnn = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(6, 3, strides=2, activation="relu"), layers.Reshape((9, 6))])
    cnn.trainable = False
    encoder, decoder = EncoderBlock(embed), DecoderBlock(embed, 12, 2, length, words)
    images, captions = wave((20, 8, 8, 3), 0), tokens((20, 3, length + 1), words)
    captions[:, :, length - 2:] *= (np.arange(60) % 3 > 0).astype(np.int32).reshape(20, 3, 1)  # padding
    decoder(captions[:2, 0, :-1], encoder(cnn(images[:2])), mask=captions[:2, 0, 1:] != 0)
    e, d = encoder, decoder
    settle(None, [w for l in [cnn, e.norm_1, e.dense, e.attention, e.norm_2, d.embedding.tokens, d.embedding.positions, d.attention_1,
                              d.norm_1, d.attention_2, d.norm_2, d.ffn_1, d.ffn_2, d.norm_3, d.out] for w in l.weights])
    model = Captioning(cnn, encoder, decoder, 3)
    model.compile(optimizer=keras.optimizers.SGD(WarmUp(), momentum=0.9, nesterov=True),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction=None))
    h = model.fit(images, captions, batch_size=8, epochs=2, validation_data=(images[:10], captions[:10]), **FIT)
    test = model.evaluate(images, captions, batch_size=10, verbose=0, return_dict=True)
    return dict(shown(h), test=[test["loss"], test["acc"]], weights=weight_sum(encoder, decoder),
                iterations=float(model.optimizer.iterations))


def main():
    programs = [vae, wgan_gp, siamese, distillation, seq2seq, transfer, mixup, callbacks, captioning]
    answers = {}
    for program in programs:
        keras.backend.clear_session()
        answers[program.__name__] = {k: v if isinstance(v, list) else [v] for k, v in program().items()}
    rounded = {p: {k: [float(f"{x:.9g}") for x in v] for k, v in a.items()} for p, a in answers.items()}
    print(json.dumps(rounded, indent=0).replace(",\n", ","))


main()

"""Batches of tf.data's bucket_by_sequence_length, for padded_test.cc. Prints JSON.

    python bucket_batches.py > bucket_batches.json

Element i is i repeated length(i) times; each batch is its rows."""
import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf


def length(i):
    return (i * 7 + i * i * 3) % 11 + 1


def batches(most, **options):
    def rows():
        for i in range(23):
            if length(i) < most:
                yield [i] * length(i)

    data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([None], tf.int64))
    data = data.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 5, 9], [3, 2, 4, 2], **options)
    return [batch.numpy().tolist() for batch in data]


minus = tf.constant(-1, tf.int64)
print(json.dumps({
    "plain": batches(99, padding_values=minus),
    "drop": batches(99, drop_remainder=True),
    "boundary": batches(9, pad_to_bucket_boundary=True, padding_values=minus),
}))

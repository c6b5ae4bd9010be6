"""Train a small model with MultiWorkerMirroredStrategy: each worker computes the gradient of its part of every batch.

It continues from the last checkpoint in the folder CHECKPOINTS, which all workers read and worker 0 writes.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

FEATURES, ROWS = 8, 64
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, for demonstrations")
    options = parser.parse_args()

    # The workers' addresses and the number of this one are in TF_CONFIG, which Peloton sets.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, size = resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))
        done = tf.Variable(0, dtype=tf.int64)
        optimizer = tf.keras.optimizers.SGD(RATE)
        optimizer.build([weights])

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        def compute(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights - y) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, weights) / size, weights)])
            return loss

        losses = strategy.run(compute, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    checkpoints = Path(os.environ["CHECKPOINTS"])
    checkpoint = tf.train.Checkpoint(weights=weights, done=done, optimizer=optimizer)
    # All workers have to save, as a synchronised variable is read by all; the others write to a folder of their own.
    folder = checkpoints / ("tensorflow" if rank == 0 else f"tensorflow-of-worker-{rank}")
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
    checkpoint.restore(tf.train.latest_checkpoint(str(checkpoints / "tensorflow")))
    first = int(done.numpy())
    print(f"rank {rank} of {size} begins at step {first}", flush=True)

    wanted = np.arange(1.0, FEATURES + 1, dtype=np.float32)[:, None]
    for number in range(first, options.steps):
        x = np.random.default_rng((number, rank)).normal(size=(ROWS, FEATURES)).astype(np.float32)
        loss = step(tf.constant(x), tf.constant(x @ wanted))
        done.assign(number + 1)
        manager.save()
        if rank == 0:
            print(f"step {number + 1} loss {float(loss):.4f} on {size} processes", flush=True)
        time.sleep(options.pause)


if __name__ == "__main__":
    main()

"""Train a small model with jax.distributed: each process computes the gradient of its part of every batch.

It continues from the last checkpoint in the folder CHECKPOINTS, which all processes read and rank 0 writes.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FEATURES, ROWS = 8, 64
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, for demonstrations")
    options = parser.parse_args()

    rank, size = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
    if jax.config.jax_platforms == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # The coordinator's address is JAX_COORDINATOR_ADDRESS, which Peloton sets.
    jax.distributed.initialize(num_processes=size, process_id=rank)
    everywhere = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))

    @jax.jit
    def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
        return weights - RATE * gradient, loss

    checkpoint = Path(os.environ["CHECKPOINTS"]) / "jax.npz"
    first, weights = 0, jnp.zeros(FEATURES)
    if checkpoint.exists():
        saved = np.load(checkpoint)
        first, weights = int(saved["step"]), jnp.asarray(saved["weights"])
    print(f"rank {rank} of {size} begins at step {first}", flush=True)

    wanted = np.arange(1.0, FEATURES + 1, dtype=np.float32)
    for number in range(first, options.steps):
        random = np.random.default_rng((number, rank))
        x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
        mine = [jax.make_array_from_process_local_data(everywhere, part) for part in (x, x @ wanted)]
        weights, loss = step(weights, *mine)
        if rank == 0:
            print(f"step {number + 1} loss {float(loss):.4f} on {size} processes", flush=True)
            save(checkpoint, number + 1, np.asarray(weights))
        time.sleep(options.pause)


def save(path: Path, step: int, weights: np.ndarray) -> None:
    """Write a checkpoint under another name first, so that a reader never finds half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, step=step, weights=weights)
    partial.replace(path)


if __name__ == "__main__":
    main()

"""Train a small model with MPI: each rank computes the gradient of its part of every batch, and all add them up.

It continues from the last checkpoint in the folder CHECKPOINTS, which all ranks read and rank 0 writes.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

FEATURES, ROWS = 8, 64
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, for demonstrations")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    checkpoint = Path(os.environ["CHECKPOINTS"]) / "mpi.npz"
    first, weights = 0, np.zeros(FEATURES)
    if checkpoint.exists():
        saved = np.load(checkpoint)
        first, weights = int(saved["step"]), saved["weights"]
    world.Barrier()  # no rank writes the next one before all have read this
    print(f"rank {rank} of {size} begins at step {first}", flush=True)

    wanted = np.arange(1.0, FEATURES + 1)
    for number in range(first, options.steps):
        x = np.random.default_rng((number, rank)).normal(size=(ROWS, FEATURES))
        error = x @ (weights - wanted)
        gradient = world.allreduce(2 * x.T @ error / ROWS) / size
        loss = world.allreduce(float(np.mean(error**2))) / size
        weights = weights - RATE * gradient
        if rank == 0:
            print(f"step {number + 1} loss {loss:.4f} on {size} processes", flush=True)
            save(checkpoint, number + 1, weights)
        time.sleep(options.pause)


def save(path: Path, step: int, weights: np.ndarray) -> None:
    """Write a checkpoint under another name first, so that a reader never finds half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, step=step, weights=weights)
    partial.replace(path)


if __name__ == "__main__":
    main()

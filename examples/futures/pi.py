"""Estimates pi by 400 calls that run on instances of a job.

peloton respool create /science examples/futures/pool.yaml
python examples/futures/pi.py --address localhost:5397 --pool /science
"""

from __future__ import annotations

import argparse
import random
from itertools import repeat

from peloton.integrations.futures import PelotonExecutor
from peloton.integrations.instances import InstanceSpec


def count_inside(seed: int, throws: int) -> int:
    """Return how many of the throws hit the quarter of the circle."""
    chance = random.Random(seed)
    return sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(throws))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="localhost:5397")
    parser.add_argument("--pool", default="/science")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--throws", type=int, default=100_000)
    options = parser.parse_args()

    spec = InstanceSpec(cpu=0.5, memory_mib=64, disk_mib=16)
    with PelotonExecutor(options.address, options.pool, instances_max=4, spec=spec, name="pi") as executor:
        inside = sum(executor.map(count_inside, range(options.calls), repeat(options.throws)))
    print(f"job {executor.job_id}: pi is about {4 * inside / (options.calls * options.throws):.4f}")


if __name__ == "__main__":
    main()

"""Estimates pi by a cluster of Dask whose workers come with the tasks, and go with them.

peloton respool create /science examples/futures/pool.yaml
python examples/dask/pi.py --address localhost:5397 --pool /science
"""

from __future__ import annotations

import argparse
import random

from distributed import Client

from peloton.integrations.dask import PelotonCluster
from peloton.integrations.instances import InstanceSpec


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="localhost:5397")
    parser.add_argument("--pool", default="/science")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--throws", type=int, default=100_000)
    options = parser.parse_args()

    def count_inside(seed: int) -> int:
        """Return how many of the throws hit the quarter of the circle."""
        chance = random.Random(seed)
        return sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(options.throws))

    spec = InstanceSpec(cpu=0.5, memory_mib=256, disk_mib=16)
    with PelotonCluster(options.address, options.pool, spec=spec, name="pi") as cluster, Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=4)
        inside = sum(client.gather(client.map(count_inside, range(options.tasks))))
        print(f"job {cluster.job_id}: pi is about {4 * inside / (options.tasks * options.throws):.4f}")


if __name__ == "__main__":
    main()

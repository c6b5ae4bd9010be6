"""Runs 40 tasks on the Ray cluster of cluster.yaml, whose workers come for them and go afterwards.

python examples/ray/squares.py
"""

from __future__ import annotations

import time

import ray


@ray.remote(num_cpus=1)
def square(number: int) -> tuple[int, str]:
    time.sleep(0.2)
    return number * number, ray.get_runtime_context().get_node_id()


def main() -> None:
    ray.init(address="auto", log_to_driver=False)
    results = ray.get([square.remote(number) for number in range(40)])
    print(f"the sum is {sum(result for result, _ in results)}, by {len({node for _, node in results})} nodes")


if __name__ == "__main__":
    main()

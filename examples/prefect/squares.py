"""A flow that Prefect runs as a job: it sums squares, slowly.

prefect server start                                               # in a terminal of its own, as the next three
export PREFECT_API_URL=http://127.0.0.1:4200/api                   # also in the last one
prefect work-pool create cluster --type peloton
prefect worker start --pool cluster
peloton respool create /science examples/futures/pool.yaml
python examples/prefect/squares.py
"""

from __future__ import annotations

import time
from pathlib import Path

from prefect import flow, task
from prefect.deployments import run_deployment


@task(log_prints=True)
def square(number: int, pause_s: float) -> int:
    time.sleep(pause_s)
    print(f"{number} squared")
    return number * number


@flow(retries=0)
def sum_squares(count: int = 5, pause_s: float = 0.1) -> int:
    total = sum(square(number, pause_s) for number in range(count))
    print(f"the sum is {total}")
    return total


def deploy(work_pool: str, **job_variables: object) -> str:
    """Make a deployment whose flow runs are jobs in the pool /science; return its name."""
    entrypoint = f"{Path(__file__).name}:sum_squares"
    source = sum_squares.from_source(source=str(Path(__file__).parent), entrypoint=entrypoint)
    variables = {"pool": "/science", "cpu": 0.5, "memory_mib": 512, **job_variables}
    source.deploy("on-peloton", work_pool_name=work_pool, job_variables=variables, print_next_steps=False)
    return "sum-squares/on-peloton"


if __name__ == "__main__":
    run = run_deployment(deploy("cluster"))
    print(f"{run.name}: {run.state_name}")

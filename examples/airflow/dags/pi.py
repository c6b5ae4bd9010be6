"""Estimates pi by a job, and checks the estimate by another one. Make the pool first:

peloton respool create /science examples/futures/pool.yaml
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import dag

from peloton.integrations.airflow import PelotonOperator

INSTANCES = 3
COUNT = """python3 -c "
import random
inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(200_000))
print('pi is about', inside / 50_000)
" && sleep 3"""


def job(name: str, command: str, instances: int) -> dict[str, Any]:
    return {
        "name": name,
        "instanceCount": instances,
        "sla": {"preemptible": True},
        "defaultConfig": {
            "resource": {"cpuLimit": 0.5, "memLimitMb": 64, "diskLimitMb": 16},
            "command": {"shell": True, "value": command},
        },
    }


@dag(schedule=None)
def pi() -> None:
    address = os.environ.get("PELOTON_ADDRESS", "localhost:5397")
    common: dict[str, Any] = {"resource_pool": "/science", "address": address}
    # The triggerer waits for this one: the task takes no slot of Airflow meanwhile.
    count = PelotonOperator(task_id="count", config=job("airflow-count", COUNT, INSTANCES), deferrable=True, **common)
    # Templates are rendered in the configuration.
    checked = "echo checked {{ ti.xcom_pull(task_ids='count') }}"
    check = PelotonOperator(task_id="check", config=job("airflow-check", checked, 1), **common)
    count >> check


pi()

"""Ends tasks of Airflow before their jobs end: ``airflow_ends.py ADDRESS``; prints the id of each job."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from peloton.client import Client
from peloton.errors import NotFound
from peloton.integrations.airflow import PelotonOperator, job_id_of_try
from peloton.integrations.airflow_executor import PelotonExecutor

POOL, PAUSE_S = "/science", 0.5
address = sys.argv[1]
client = Client(address)


def task_instance(task_id: str, try_number: int) -> Any:
    return SimpleNamespace(dag_id="ends", run_id="two", task_id=task_id, map_index=-1, try_number=try_number)


def job(command: str, instances: int = 1) -> dict[str, Any]:
    return {
        "name": "airflow-ends",
        "instanceCount": instances,
        "sla": {"preemptible": True},
        "defaultConfig": {"resource": {"cpuLimit": 0.1, "memLimitMb": 32}, "command": {"value": command}},
    }


def start(task: Any) -> tuple[PelotonOperator, str]:
    """Begin a try of a task; return its operator and the id of its job, which runs."""
    operator = PelotonOperator(task_id=task.task_id, resource_pool=POOL, config=job("sleep 600"), address=address)

    def run() -> None:
        try:
            operator.execute({"ti": task})
        except Exception as error:
            print("failed:", error, file=sys.stderr)  # the job was stopped

    threading.Thread(target=run, daemon=True).start()
    job_id = job_id_of_try(task, task.try_number)
    while not is_running(job_id):
        time.sleep(PAUSE_S)
    return operator, job_id


def is_running(job_id: str) -> bool:
    try:
        return client.progress(job_id).counts.get("RUNNING", 0) > 0
    except NotFound:
        return False


_, first = start(task_instance("sleep", 1))
operator, second = start(task_instance("sleep", 2))  # a new try, as after the death of a worker
client.wait(first)
operator.on_kill()
client.wait(second)

adopted = client.submit(POOL, job("[ $PELOTON_INSTANCE_ID = 0 ] || sleep 600", 2))
keys = [TaskInstanceKey("ends", task_id, "one") for task_id in ("short", "long")]
tasks = [SimpleNamespace(key=key, external_executor_id=f"{adopted}/{number}") for number, key in enumerate(keys)]
executor = PelotonExecutor(parallelism=2)
assert [] == executor.try_adopt_task_instances(tasks)
while keys[0] not in executor.event_buffer:
    executor.heartbeat()
    time.sleep(PAUSE_S)
assert executor.event_buffer[keys[0]][0] == TaskInstanceState.SUCCESS
executor.revoke_task(ti=tasks[1])
client.wait(adopted)
executor.heartbeat()
assert (set(), {}) == (executor.running, executor.batches)
executor.end()
print(first, second, adopted)

"""Runs a DAG of the examples to its end: ``airflow_life.py DAG [--executor]``."""

from __future__ import annotations

import sys

from airflow.dag_processing.dagbag import DagBag

name, *options = sys.argv[1:]
run = DagBag().dags[name].test(use_executor="--executor" in options)
for task in sorted(run.get_task_instances(), key=lambda task: (task.task_id, task.map_index)):
    print("task", task.task_id, task.map_index, task.state, flush=True)
print("run", run.state, flush=True)

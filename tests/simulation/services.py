"""Services and their settings."""

from __future__ import annotations

from typing import Any

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from peloton.model.pod import Label
from tests.conformance.storage.services import service_config


class Service:
    """Settings of a service. ``per_host``: pods of it on one host at most, 0 = any number. ``in_place``: updates keep
    them there. ``max_skew``: between racks, 0 = any; pods that are spread would all rather be on rack a.
    """

    def __init__(
        self, job_id: JobId, count: int, cpu: float, per_host: int, in_place: bool, sla: dict[str, Any]
    ) -> None:
        self.job_id, self.count, self.cpu, self.sla = job_id, count, cpu, sla
        self.per_host, self.in_place, self.max_skew = per_host, in_place, 0
        self.label: Label = ("simulated", job_id)

    def config(self, command: int) -> job_pb2.JobConfig:
        config = service_config(self.count, f"v{command}", **self.sla)
        if self.max_skew:
            config.placement.spread.add(label="rack", maxSkew=self.max_skew)
        task = config.defaultConfig
        task.resource.cpuLimit = self.cpu
        if self.per_host:
            task.labels.add(key=self.label[0], value=self.label[1])
            at_most = task_pb2.LabelConstraint.CONDITION_LESS_THAN
            _fill(task.constraint, task_pb2.LabelConstraint.TASK, self.label, at_most, self.per_host)
        if self.max_skew:
            rule = task.hostPreferences.add(weight=1).constraint
            _fill(rule, task_pb2.LabelConstraint.HOST, ("rack", "a"), task_pb2.LabelConstraint.CONDITION_EQUAL, 1)
        return config


def _fill(
    rule: task_pb2.Constraint,
    kind: task_pb2.LabelConstraint.Kind.ValueType,
    label: Label,
    condition: task_pb2.LabelConstraint.Condition.ValueType,
    requirement: int,
) -> None:
    rule.type = task_pb2.Constraint.LABEL_CONSTRAINT
    rule.labelConstraint.kind, rule.labelConstraint.condition = kind, condition
    rule.labelConstraint.label.key, rule.labelConstraint.label.value = label
    rule.labelConstraint.requirement = requirement

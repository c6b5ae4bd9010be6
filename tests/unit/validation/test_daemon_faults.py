"""Rules for the configurations of daemons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from services.api.pool_rules import PoolBounds
from services.api.validation import daemon_count_fault, job_faults

SMALL = PoolBounds((100, 100, 100, 0), ("/default", "/default", "/default", "/default"))
BEYOND_SLA = "sla has {}: a daemon runs on each of its hosts for as long as these are there"


def a_config() -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="logs", type=job_pb2.DAEMON)
    config.defaultConfig.command.value = "collect"
    config.defaultConfig.resource.cpuLimit = 0.5
    return config


def label(kind: task_pb2.LabelConstraint.Kind.ValueType) -> task_pb2.Constraint:
    equal = task_pb2.LabelConstraint.CONDITION_EQUAL
    named = peloton_pb2.Label(key="rack", value="a")
    one = task_pb2.LabelConstraint(kind=kind, label=named, condition=equal, requirement=1)
    return task_pb2.Constraint(type=task_pb2.Constraint.LABEL_CONSTRAINT, labelConstraint=one)


def on_hosts(config: job_pb2.JobConfig) -> None:
    config.defaultConfig.constraint.CopyFrom(label(task_pb2.LabelConstraint.HOST))


def with_pods(config: job_pb2.JobConfig) -> None:
    config.defaultConfig.constraint.CopyFrom(label(task_pb2.LabelConstraint.TASK))


def own_instance(config: job_pb2.JobConfig) -> None:
    config.instanceConfig[3].resource.cpuLimit = 1


def no_command(config: job_pb2.JobConfig) -> None:
    config.defaultConfig.ClearField("command")


def with_volume(config: job_pb2.JobConfig) -> None:
    config.defaultConfig.volume.sizeMB = 10


def preemptible_pods(config: job_pb2.JobConfig) -> None:
    config.defaultConfig.preemptionPolicy.killOnPreempt = True


def sla(**fields: Any) -> Callable[[job_pb2.JobConfig], None]:
    return lambda config: config.sla.CopyFrom(job_pb2.SlaConfig(**fields))


def test_a_daemon_is_sound_whatever_its_pool_may_have() -> None:
    """The pool's limits do not apply to daemons, and their hosts may be selected by labels."""
    config = a_config()
    on_hosts(config)
    assert [] == job_faults(config, SMALL).lines()


def test_its_instances_are_not_counted_by_people() -> None:
    """A new daemon has no instance count; an update may contain the count that was read."""
    config = a_config()
    assert "" == daemon_count_fault(config)
    config.instanceCount = 7
    expected = "instanceCount is 7: a daemon has an instance on each host that matches, leave it out"
    assert (expected, []) == (daemon_count_fault(config), job_faults(config, None).lines())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (own_instance, "instanceConfig is given for instance 3: all instances of a daemon are alike"),
        (no_command, "missing command info for instance 0"),
        (with_volume, "Invalid config for instance 0, volume is given for a daemon: only services have volumes"),
        (
            preemptible_pods,
            "Invalid config for instance 0, preemption policy is given for a daemon: pods of daemons are never evicted",
        ),
        (with_pods, "Invalid config for instance 0, constraint on labels of pods is given for a daemon"),
        (
            lambda config: setattr(config.defaultConfig, "revocable", True),
            "instance 0, revocable is given for a daemon",
        ),
        (sla(preemptible=1), BEYOND_SLA.format("preemptible")),
        (sla(minimumRunningInstances=2), BEYOND_SLA.format("minimumRunningInstances")),
        (sla(maxRunningTime=60), BEYOND_SLA.format("maxRunningTime")),
    ],
)
def test_what_a_daemon_cannot_have(change: Callable[[job_pb2.JobConfig], None], text: str) -> None:
    """The fault has the reason."""
    config = a_config()
    change(config)
    found = job_faults(config, None).lines()
    assert (1, True) == (len(found), text in found[0])

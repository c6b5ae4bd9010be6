"""Every rule for a v0 JobConfig, one row each: the config, and the text of the fault."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.config_bounds import AMOUNTS_MAX
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import resources
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from services.api.backlog import Bounds
from services.api.faults import FAULTS_MAX
from services.api.pool_rules import PoolBounds
from services.api.validation import clamp_max_failures, job_faults
from tests.bench.baseline import yardstick_ms

TASK = task_pb2.TaskConfig
PORT = task_pb2.PortConfig
BOUNDS = PoolBounds((12_000, 4_096, 10_000, 0), ("/default", "/default", "/", "/default"))
PREEMPTIBLE = task_pb2.PreemptionPolicy(type=task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE)
LABELLED = task_pb2.Constraint(
    type=task_pb2.Constraint.LABEL_CONSTRAINT,
    labelConstraint=task_pb2.LabelConstraint(
        kind=task_pb2.LabelConstraint.HOST, label=peloton_pb2.Label(key="rack", value="r1")
    ),
)


def nest_constraints(depth: int) -> task_pb2.Constraint:
    """Return a constraint of alternating AND and NOT."""
    whole = part = task_pb2.Constraint(type=task_pb2.Constraint.AND_CONSTRAINT)
    for level in range(1, depth):
        if level % 2:
            part = part.andConstraint.constraints.add(type=task_pb2.Constraint.NOT_CONSTRAINT)
        else:
            part = part.notConstraint.constraint
            part.type = task_pb2.Constraint.AND_CONSTRAINT
    return whole


def config(instance_count: int = 4, **fields: object) -> job_pb2.JobConfig:
    """Return a valid batch job with the number of instances, each one cpu and 64 MB."""
    job = job_pb2.JobConfig(name="sound", instanceCount=instance_count)
    job.defaultConfig.resource.cpuLimit = 1
    job.defaultConfig.resource.memLimitMb = 64
    job.defaultConfig.command.value = "true"
    for name, value in fields.items():
        getattr(job, name).CopyFrom(value) if hasattr(value, "CopyFrom") else setattr(job, name, value)
    return job


def make_changed_config(change: Callable[[job_pb2.JobConfig], object], instance_count: int = 4) -> job_pb2.JobConfig:
    job = config(instance_count)
    change(job)
    return job


def override(instance: int, **fields: Any) -> job_pb2.JobConfig:
    job = config()
    job.instanceConfig[instance].CopyFrom(TASK(**fields))
    return job


def ports(*items: tuple[str, int, str]) -> list[task_pb2.PortConfig]:
    return [PORT(name=name, value=value, envName=env) for name, value, env in items]


def variables(*names: str) -> mesos_pb2.CommandInfo:
    command = mesos_pb2.CommandInfo(value="env")
    for name in names:
        command.environment.variables.add(name=name, value="1")
    return command


RULES: dict[str, tuple[job_pb2.JobConfig, str]] = {
    "sound": (config(), ""),
    "no instances": (config(0), ""),
    "the most instances": (config(100_000), ""),
    "external": (config(type=job_pb2.EXTERNAL), "invalid job type: EXTERNAL"),
    "unknown type": (config(type=9), "invalid job type: 9"),
    "service": (config(type=job_pb2.SERVICE), ""),
    "NUL": (config(name="a\0b"), "name 'a\\x00b' contains NUL"),
    "too many instances": (
        config(100_001),
        "Requested tasks: 100001 for job is greater than supported: 100000 tasks/job",
    ),
    "required field of an embedded message": (
        override(1, container=mesos_pb2.ContainerInfo()),
        "job config lacks required fields: instanceConfig[1].container.type",
    ),
    "port name": (
        make_changed_config(lambda j: j.defaultConfig.ports.extend(ports(("", 80, "")))),
        "Port name is missing",
    ),
    "port name of an override": (override(2, ports=ports(("", 80, ""))), "Port name is missing"),
    "env name": (
        make_changed_config(lambda j: j.defaultConfig.ports.extend(ports(("http", 0, "")))),
        "Env name is missing for dynamic port",
    ),
    "port value": (
        override(2, ports=ports(("http", 70_000, ""))),
        "Invalid config for instance 2, port 'http' has value 70000, the greatest port is 65535",
    ),
    "static port twice": (
        override(1, ports=ports(("a", 80, ""), ("b", 80, ""))),
        "Invalid config for instance 1, static port 80 is asked by both 'a' and 'b'",
    ),
    "port name twice": (
        override(1, ports=ports(("a", 80, ""), ("a", 81, ""))),
        "Invalid config for instance 1, port name 'a' is used twice",
    ),
    "env name twice": (
        override(1, ports=ports(("a", 0, "P"), ("b", 0, "P"))),
        "Invalid config for instance 1, envName 'P' is used by both 'a' and 'b'",
    ),
    "convention of discovery": (
        override(1, labels=[peloton_pb2.Label(key="peloton.gang", value="torch,mxnet")]),
        "Invalid config for instance 1, label peloton.gang has value 'torch,mxnet': want some of torch, jax, "
        "tensorflow, with commas between",
    ),
    "two dynamic ports": (override(1, ports=ports(("a", 0, "P"), ("b", 0, "Q"))), ""),
    "no config": (
        make_changed_config(lambda j: j.ClearField("defaultConfig")),
        "missing task config for instance 0",
    ),
    "no command": (
        make_changed_config(lambda j: j.defaultConfig.ClearField("command")),
        "missing command info for instance 0",
    ),
    "command only in overrides": (
        make_changed_config(
            lambda j: (j.defaultConfig.ClearField("command"), j.instanceConfig[0].command.SetInParent())
        ),
        "missing command info for instance 1",
    ),
    "command in every override": (
        make_changed_config(
            lambda j: (j.defaultConfig.ClearField("command"), j.instanceConfig[0].command.SetInParent()), 1
        ),
        "",
    ),
    "override without a default": (
        make_changed_config(lambda j: (j.ClearField("defaultConfig"), j.instanceConfig[0].SetInParent()), 1),
        "missing command info for instance 0",
    ),
    "controller beyond 0": (override(1, controller=True), "only task 0 can be controller task"),
    "controller by default": (
        make_changed_config(lambda j: setattr(j.defaultConfig, "controller", True)),
        "only task 0 can be controller task",
    ),
    "controller by default, alone": (
        make_changed_config(lambda j: setattr(j.defaultConfig, "controller", True), 1),
        "",
    ),
    "controller 0": (override(0, controller=True), ""),
    "health check": (
        make_changed_config(lambda j: j.defaultConfig.healthCheck.SetInParent()),
        "Invalid config for instance 0, Batch job task should not set health check ",
    ),
    "executor": (
        override(3, executor=mesos_pb2.ExecutorInfo(executor_id=mesos_pb2.ExecutorID(value="e"))),
        "Invalid config for instance 3, Batch job task should not include executor config",
    ),
    "negative cpu": (
        override(3, resource=task_pb2.ResourceConfig(cpuLimit=-1)),
        "Invalid config for instance 3, cpuLimit -1 is negative",
    ),
    "negative by default": (
        make_changed_config(
            lambda j: (setattr(j.defaultConfig.resource, "memLimitMb", -0.5), j.instanceConfig[0].SetInParent())
        ),
        "Invalid config for instance 0, memLimitMb -0.5 is negative",
    ),
    "nan": (
        override(3, resource=task_pb2.ResourceConfig(gpuLimit=math.nan)),
        "Invalid config for instance 3, gpuLimit nan is not a finite number",
    ),
    "infinite": (
        override(3, resource=task_pb2.ResourceConfig(diskLimitMb=math.inf)),
        "Invalid config for instance 3, diskLimitMb inf is not a finite number",
    ),
    "absurd": (
        override(3, resource=task_pb2.ResourceConfig(cpuLimit=1e18)),
        "Invalid config for instance 3, cpuLimit 1e+18 is greater than 1073741824, the most that a pod can ask",
    ),
    "environment without a name": (
        override(3, command=variables("A", "")),
        "Invalid config for instance 3, environment variable 1 of the command has no name",
    ),
    "environment with '='": (
        override(3, command=variables("A=B")),
        "Invalid config for instance 3, environment variable 0 of the command has a name with '=' or NUL: 'A=B'",
    ),
    "constraint that is too deep": (
        override(3, constraint=nest_constraints(21)),
        "Invalid config for instance 3, constraint has 21 constraints in each other, at most 20 are allowed",
    ),
    "constraint without a condition": (
        override(3, constraint=LABELLED),
        "Invalid config for instance 3, label constraint on 'rack' has no condition",
    ),
    "preemption in a gang": (
        make_changed_config(
            lambda j: (
                setattr(j.sla, "minimumRunningInstances", 2),
                j.instanceConfig[1].preemptionPolicy.CopyFrom(PREEMPTIBLE),
            )
        ),
        "can't override the preemption policy of a task which is going to be a part of a gang having tasks with a "
        "different preemption policy",
    ),
    "preemption beside a gang": (
        make_changed_config(
            lambda j: (
                setattr(j.sla, "minimumRunningInstances", 2),
                j.instanceConfig[2].preemptionPolicy.CopyFrom(PREEMPTIBLE),
            )
        ),
        "",
    ),
    "preemption as the job's": (
        make_changed_config(
            lambda j: (
                setattr(j.sla, "minimumRunningInstances", 2),
                setattr(j.sla, "preemptible", True),
                j.defaultConfig.preemptionPolicy.CopyFrom(PREEMPTIBLE),
            )
        ),
        "",
    ),
    "maximum running": (
        config(sla=job_pb2.SlaConfig(maximumRunningInstances=5)),
        "Job specified MaximumRunningInstances > InstanceCount",
    ),
    "minimum running": (
        config(sla=job_pb2.SlaConfig(maximumRunningInstances=2, minimumRunningInstances=3)),
        "Job specified MinimumRunningInstances > MaximumRunningInstances",
    ),
    "minimum running without a maximum": (
        config(sla=job_pb2.SlaConfig(minimumRunningInstances=5)),
        "Job specified MinimumRunningInstances > MaximumRunningInstances",
    ),
    "a gang of more members than one call launches": (
        config(30_000, sla=job_pb2.SlaConfig(minimumRunningInstances=20_001)),
        "Job specified MinimumRunningInstances 20001 > 20000, the most members of a gang",
    ),
    "override beyond the last instance": (
        override(4, name="four"),
        "instanceConfig is given for instance 4, instanceCount is 4",
    ),
    "pod above its pool's cpu": (
        make_changed_config(lambda j: setattr(j.defaultConfig.resource, "cpuLimit", 1000)),
        "instance 0 asks cpu 1000, limit of resource pool /default is 12",
    ),
    "pod above the cluster's disk": (
        override(2, resource=task_pb2.ResourceConfig(cpuLimit=0.5, diskLimitMb=10_001)),
        "instance 2 asks disk 10001, limit of resource pool / is 10000",
    ),
    "pod asks what the pool has none of": (
        override(2, resource=task_pb2.ResourceConfig(gpuLimit=0.25)),
        "instance 2 asks gpu 0.25, limit of resource pool /default is 0",
    ),
    "pod at its pool's limit": (make_changed_config(lambda j: setattr(j.defaultConfig.resource, "cpuLimit", 12)), ""),
    "revocable cpu": (
        make_changed_config(
            lambda j: (setattr(j.defaultConfig.resource, "cpuLimit", 13), setattr(j.sla, "revocable", True))
        ),
        "",
    ),
    "gang above its pool": (
        make_changed_config(
            lambda j: (
                setattr(j.defaultConfig.resource, "cpuLimit", 4),
                setattr(j.sla, "minimumRunningInstances", 4),
                j.instanceConfig[1].resource.CopyFrom(task_pb2.ResourceConfig(cpuLimit=1.5)),
            )
        ),
        "the gang of instances 0-3 asks cpu 13.5, limit of resource pool /default is 12",
    ),
    "gang with a revocable member": (
        make_changed_config(
            lambda j: (
                setattr(j.defaultConfig.resource, "cpuLimit", 4),
                setattr(j.sla, "minimumRunningInstances", 4),
                setattr(j.instanceConfig[1], "revocable", True),
            )
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    """Each rule has exactly its text, and a valid config has no fault."""
    job, text = RULES[name]

    assert text == job_faults(job, BOUNDS).message()


def test_pool_rules_wait_for_limits() -> None:
    """Amounts are not compared if the limits are unknown."""
    job = make_changed_config(lambda j: setattr(j.defaultConfig.resource, "cpuLimit", 1000))

    assert job_faults(job, None).message() == ""


def test_all_faults_are_reported_in_order() -> None:
    """Several faults are one per line, in the order of the rules."""
    job = config(sla=job_pb2.SlaConfig(maximumRunningInstances=9))
    job.instanceConfig[3].resource.cpuLimit = -1
    job.instanceConfig[1].ports.add(value=80)

    assert job_faults(job, BOUNDS).message().split("\n") == [
        "Port name is missing",
        "Invalid config for instance 3, cpuLimit -1 is negative",
        "Job specified MaximumRunningInstances > InstanceCount",
    ]


def test_faults_are_bounded() -> None:
    """The first faults are in the text, and the rest is counted."""
    job = config(1000)
    for instance in range(100):
        job.instanceConfig[instance].resource.cpuLimit = -1

    lines = job_faults(job, BOUNDS).message().split("\n")

    assert len(lines) == FAULTS_MAX + 1
    assert f"and {100 - FAULTS_MAX} more faults" == lines[-1]


def test_only_new_instances_are_validated() -> None:
    """Existing instances of a growing job are not validated again."""
    job = config()
    job.instanceConfig[1].resource.cpuLimit = -1
    job.instanceConfig[3].resource.cpuLimit = -3

    assert job_faults(job, BOUNDS, 2).message() == "Invalid config for instance 3, cpuLimit -3 is negative"


def test_max_failures_is_cut_down() -> None:
    """More than 100 retries become 100 without a fault, in the default and in overrides; fewer are unchanged."""
    job = config()
    job.defaultConfig.restartPolicy.maxFailures = 101
    job.instanceConfig[1].restartPolicy.maxFailures = 4_000_000_000
    job.instanceConfig[2].restartPolicy.maxFailures = 3

    clamp_max_failures(job)

    assert [
        job.defaultConfig.restartPolicy.maxFailures,
        job.instanceConfig[1].restartPolicy.maxFailures,
        job.instanceConfig[2].restartPolicy.maxFailures,
    ] == [100, 100, 3]
    assert not job.instanceConfig[0].HasField("restartPolicy")


def test_many_overrides_cost_little() -> None:
    """25,000 overrides of many fields are validated without merging, in a few microseconds each."""
    job = config(25_000)
    for instance in range(25_000):
        pod = job.instanceConfig[instance]
        pod.resource.cpuLimit = 1
        pod.command.value = "work"
        pod.command.environment.variables.add(name="SHARD", value=str(instance))
        pod.ports.add(name="http", envName="HTTP")
    yardstick_s = yardstick_ms() / 1_000
    started = time.process_time()

    assert job_faults(job, BOUNDS).message() == ""
    assert (time.process_time() - started) / yardstick_s < 40


BOUNDED: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "x" * 4_001}, "name has 4001 characters, at most 4000 are allowed"),
    "latency bound": (
        {"labels": [{"key": "peloton/p99-red-ms", "value": "1s"}]},
        "label peloton/p99-red-ms: '1s' is no number of milliseconds, want 0 to 3600000",
    ),
    "labels": ({"labels": [{"key": "k", "value": "v"}] * 1_001}, "job has 1001 labels, at most 1000 are allowed"),
    "label": (
        {"labels": [{"key": "k", "value": "v" * 4_000}]},
        "label 'k' has 4001 characters, at most 4000 are allowed",
    ),
    "command": (
        {"defaultConfig": {"command": {"value": "é" * 65_536}}},
        "Invalid config for instance 0, command has 131072 bytes, a host takes at most 131071",
    ),
    "NUL": ({"defaultConfig": {"command": {"value": "a\0b"}}}, "Invalid config for instance 0, command contains NUL"),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_texts_are_bounded(name: str) -> None:
    """Values that are part of every answer or become an argument have a maximum length; the fault has both numbers."""
    fields, text = BOUNDED[name]
    config = job_pb2.JobConfig(instanceCount=1, type=job_pb2.BATCH)
    config.defaultConfig.command.value = "true"

    faults = job_faults(ParseDict(fields, config), None)

    assert [text] == faults.lines()


@pytest.mark.parametrize("kind", AMOUNTS_MAX)
def test_what_all_pods_together_may_ask_can_be_added_up(kind: str) -> None:
    """The sum over all pods fits int64 in small units twice, including revocable cpu, which no pool's limit bounds."""
    amounts: dict[str, Any] = {kind: AMOUNTS_MAX[kind]}
    most = task_pb2.ResourceConfig(**amounts)

    assert 2 * Bounds().pods_active * max(resources(most)) < 2**63

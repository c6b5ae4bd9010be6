"""The rules that apply to service jobs only, one row each: the config, and the text of the fault."""

from __future__ import annotations

from typing import Any, cast

import pytest

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from services.api.task_rules import NEVER_PREEMPTED
from services.api.validation import job_faults

CUSTOM = mesos_pb2.ExecutorInfo.CUSTOM
Check = task_pb2.HealthCheckConfig
Policy = task_pb2.PreemptionPolicy
Volume = task_pb2.PersistentVolumeConfig
NO_PATH = (
    "volume has containerPath {!r}: want a path in the sandbox like 'data', with at most 200 characters, that does not "
    "begin with / and has no empty part, no . and no .."
)


def service(sla: job_pb2.SlaConfig | None = None, **fields: Any) -> job_pb2.JobConfig:
    """Return a valid service of four instances; ``fields`` are its default config's."""
    job = job_pb2.JobConfig(name="web", type=job_pb2.SERVICE, instanceCount=4, sla=sla)
    job.defaultConfig.CopyFrom(task_pb2.TaskConfig(**fields))
    job.defaultConfig.command.value = "serve"
    return job


def override(**fields: Any) -> job_pb2.JobConfig:
    job = service()
    job.instanceConfig[2].CopyFrom(task_pb2.TaskConfig(**fields))
    return job


def both(job: job_pb2.JobConfig, **fields: Any) -> job_pb2.JobConfig:
    job.instanceConfig[2].CopyFrom(task_pb2.TaskConfig(**fields))
    return job


def http_check(port_name: str, port: int = 0) -> Check:
    return Check(enabled=True, type=Check.HTTP, httpCheck=Check.HTTPCheck(portName=port_name, port=port))


def executor(**fields: Any) -> mesos_pb2.ExecutorInfo:
    return mesos_pb2.ExecutorInfo(executor_id=mesos_pb2.ExecutorID(value="e"), **fields)


def invalid(instance: int, text: str) -> str:
    return f"Invalid config for instance {instance}, {text}"


SLA = job_pb2.SlaConfig
WEB = task_pb2.PortConfig(name="web", envName="WEB")
ADMIN = task_pb2.PortConfig(name="admin", value=8080)
NO_PORTS = "health check of type HTTP has portName 'web'; it has no ports"
COMMAND = Check.CommandCheck(command="true")
KILLS = Policy(type=Policy.TYPE_PREEMPTIBLE, killOnPreempt=True)
NO_KILL = "Task preemption policy should be false for stateless job"
NO_COMMAND = "health check of type COMMAND has no command"
RULES: dict[str, tuple[job_pb2.JobConfig, str]] = {
    "sound": (service(), ""),
    "kill on preemption": (service(preemptionPolicy=KILLS), invalid(0, NO_KILL)),
    "kill on preemption of one": (override(preemptionPolicy=KILLS), invalid(2, NO_KILL)),
    "preemptible": (service(preemptionPolicy=Policy(type=Policy.TYPE_PREEMPTIBLE)), ""),
    "default executor": (
        service(executor=executor(type=mesos_pb2.ExecutorInfo.DEFAULT)),
        invalid(0, "Unsupported type in executor config"),
    ),
    "executor without a type": (service(executor=executor()), invalid(0, "Unsupported type in executor config")),
    "executor without data": (
        override(executor=executor(type=CUSTOM)),
        invalid(2, "Data field not set in executor config"),
    ),
    "custom executor": (service(executor=executor(type=CUSTOM, data=b"d")), ""),
    "maximum of running instances": (
        service(SLA(maximumRunningInstances=1)),
        "MaximumRunningInstances should be 0 for stateless job",
    ),
    "minimum of running instances": (
        service(SLA(minimumRunningInstances=1)),
        "MinimumRunningInstances should be 0 for stateless job",
    ),
    "longest run time": (service(SLA(maxRunningTime=1)), "MaxRunningTime should be 0 for stateless job"),
    "revocable": (service(SLA(revocable=True)), "revocable job must be preemptible"),
    "revocable and preemptible": (service(SLA(revocable=True, preemptible=True)), ""),
    "unavailable instances": (service(SLA(maximumUnavailableInstances=9, strictUpdates=True)), ""),
    "command check": (service(healthCheck=Check(enabled=True, type=Check.COMMAND, commandCheck=COMMAND)), ""),
    "command check without a command": (
        service(healthCheck=Check(enabled=True, type=Check.COMMAND)),
        invalid(0, NO_COMMAND),
    ),
    "http check": (
        service(healthCheck=Check(enabled=True, type=Check.HTTP, httpCheck=Check.HTTPCheck(port=65_535))),
        "",
    ),
    "http check without a port": (
        override(healthCheck=Check(enabled=True, type=Check.HTTP)),
        invalid(2, "health check of type HTTP has port 0, want 1 to 65535, or a portName"),
    ),
    "http check of a dynamic port": (service(healthCheck=http_check("web"), ports=[WEB]), ""),
    "http check of a port of the default": (override(healthCheck=http_check("web")), invalid(2, NO_PORTS)),
    "http check of the default and ports without it": (
        both(service(healthCheck=http_check("web"), ports=[WEB]), ports=[ADMIN]),
        invalid(2, "health check of type HTTP has portName 'web'; known ports of its container: admin"),
    ),
    "http check of another port of the override": (
        both(service(healthCheck=http_check("web"), ports=[WEB]), ports=[ADMIN], healthCheck=http_check("admin")),
        "",
    ),
    "http check of an unknown port": (
        service(healthCheck=http_check("wbe"), ports=[WEB, ADMIN]),
        invalid(0, "health check of type HTTP has portName 'wbe'; known ports of its container: web, admin"),
    ),
    "http check of two ports": (
        service(healthCheck=http_check("web", port=80), ports=[WEB]),
        invalid(0, "health check of type HTTP has port 80 and portName 'web', want one of them"),
    ),
    "grpc check": (
        service(healthCheck=Check(enabled=True, type=Check.GRPC)),
        invalid(0, "health check has type GRPC, want COMMAND or HTTP"),
    ),
    "check of a type that is not known": (
        service(healthCheck=Check(enabled=True, type=cast("Any", 9))),
        invalid(0, "health check has type 9, want COMMAND or HTTP"),
    ),
    "volume": (service(volume=Volume(containerPath="data/main", sizeMB=500)), ""),
    "volume without a size": (
        service(volume=Volume(containerPath="data")),
        invalid(0, "volume has sizeMB 0, want 1 to 2147483647"),
    ),
    **{
        f"volume at {path!r}": (service(volume=Volume(containerPath=path, sizeMB=1)), invalid(0, NO_PATH.format(path)))
        for path in ("", "/data", "../data", "a/../b", "a//b", "a/", ".")
    },
    "volume of a preemptible service": (
        service(SLA(preemptible=True), volume=Volume(containerPath="data", sizeMB=1)),
        invalid(0, NEVER_PREEMPTED),
    ),
    "volume of a preemptible pod": (
        service(
            volume=Volume(containerPath="data", sizeMB=1),
            preemptionPolicy=Policy(type=Policy.TYPE_PREEMPTIBLE),
        ),
        invalid(0, NEVER_PREEMPTED),
    ),
    "volume of a revocable pod": (
        service(volume=Volume(containerPath="data", sizeMB=1), revocable=True),
        invalid(0, NEVER_PREEMPTED),
    ),
    "volume of one instance": (
        override(volume=Volume(containerPath="data", sizeMB=1)),
        invalid(2, "volume is given for one instance: all instances of a service have volumes of one size at one path"),
    ),
    "check that is switched off": (service(healthCheck=Check(type=Check.GRPC)), ""),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    """The text is exactly the rule's."""
    config, text = RULES[name]

    assert job_faults(config, None).message() == text

"""What a v0 job config must obey before it is stored. Pure: protos and pool limits in, texts out.

The rules run in stages; the texts of a stage come before those of the next, so the first line is the text that existing
clients know. A config is judged as a whole (all faults, the first ``FAULTS_MAX`` spelled out), in time that follows the
number of overrides and not the number of instances: the default config is judged once, an override only in the fields
that it carries, and nothing is merged or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, auto
from typing import Any, cast

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from services.api.faults import Faults
from services.api.pool_rules import PoolBounds, gang_faults, pod_faults
from services.api.task_rules import RULES, Carries, dynamic_port_fault, has_secret_volume, port_name_fault

MAX_TASKS_PER_JOB = 100_000
TEXT_MAX = 4_000
"""Characters of a name, a description or a label: they travel with every answer about the job."""
LABELS_MAX = 1_000
MAX_FAILURES = 100
"""More retries than this are cut down to it, silently: existing clients rely on it."""


class Stage(IntEnum):
    """Order in which faults are told."""

    FORM = auto()
    PORTS = auto()
    PRESENCE = auto()
    CONTROLLER = auto()
    POD = auto()
    PREEMPTION = auto()
    RUNNING = auto()
    OVERRIDES = auto()
    POOL = auto()


NO_COMMAND = "missing command info for instance {}"
CONTROLLER_TEXT = "only task 0 can be controller task"
GANG_PREEMPTION = (
    "can't override the preemption policy of a task which is going to be a part of a gang "
    "having tasks with a different preemption policy"
)


def job_faults(config: job_pb2.JobConfig, bounds: PoolBounds | None, first_instance: int = 0) -> Faults:
    """Everything wrong with ``config``, judging instances ``first_instance .. instanceCount-1``.

    ``bounds`` are the limits along the path of the job's pool, None when no pool rule is to be applied.
    """
    faults = Faults()
    blocking = _form_fault(config)
    if blocking:  # what follows would be judged on a wrong footing, or cost without bound
        faults.add(Stage.FORM, blocking)
        return faults
    _Judge(config, bounds, first_instance, faults).judge()
    return faults


def clamp_max_failures(config: job_pb2.JobConfig) -> None:
    """Cut ``restartPolicy.maxFailures`` down to MAX_FAILURES, in place, in the default config and all overrides."""
    for pod in (config.defaultConfig, *config.instanceConfig.values()):
        if pod.HasField("restartPolicy") and pod.restartPolicy.maxFailures > MAX_FAILURES:
            pod.restartPolicy.maxFailures = MAX_FAILURES


def secret_fault(config: job_pb2.JobConfig, has_secrets: bool) -> str:
    """Why the request's secrets are refused, or "" ."""
    if any(has_secret_volume(pod) for pod in (config.defaultConfig, *config.instanceConfig.values())):
        return "adding secret volumes directly in config is not allowed"
    return "secrets not supported by cluster" if has_secrets else ""


def _form_fault(config: job_pb2.JobConfig) -> str:
    if config.type not in RULES:
        name = job_pb2.JobType.Name(config.type) if config.type in job_pb2.JobType.values() else str(config.type)
        return f"invalid job type: {name}"
    if config.instanceCount > MAX_TASKS_PER_JOB:
        return (
            f"Requested tasks: {config.instanceCount} for job is greater than supported: {MAX_TASKS_PER_JOB} tasks/job"
        )
    for field in ("name", "owningTeam", "owner", "description"):
        text = getattr(config, field)
        if len(text) > TEXT_MAX:
            return f"{field} has {len(text)} characters, at most {TEXT_MAX} are allowed"
        if "\0" in text:
            return f"{field} {text!r} contains NUL"
    if len(config.labels) > LABELS_MAX:
        return f"job has {len(config.labels)} labels, at most {LABELS_MAX} are allowed"
    for label in config.labels:
        if (length := len(label.key) + len(label.value)) > TEXT_MAX:
            return f"label {label.key[:40]!r} has {length} characters, at most {TEXT_MAX} are allowed"
    if not config.IsInitialized():
        missing: list[str] = cast(Any, config).FindInitializationErrors()  # the stubs do not know it
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return f"job config lacks required fields: {', '.join(missing[:3])}{more}"
    return ""


class _Judge:
    """One pass over one config."""

    def __init__(
        self, config: job_pb2.JobConfig, bounds: PoolBounds | None, first_instance: int, faults: Faults
    ) -> None:
        self._config = config
        self._default = config.defaultConfig
        self._has_default = config.HasField("defaultConfig")
        self._bounds = bounds
        self._faults = faults
        self._instances = range(first_instance, config.instanceCount)
        self._overrides = {i: config.instanceConfig[i] for i in sorted(config.instanceConfig)}
        self._rules = RULES[config.type]
        self._job_gang = range(config.sla.minimumRunningInstances)

    def judge(self) -> None:
        self._judge_default()
        for instance, override in self._overrides.items():
            if instance in self._instances:
                self._judge_override(instance, override)
            elif instance >= self._config.instanceCount:
                count = self._config.instanceCount
                self._faults.add(
                    Stage.OVERRIDES, f"instanceConfig is given for instance {instance}, instanceCount is {count}"
                )
        self._judge_running_instances()
        self._judge_pool()

    def _judge_default(self) -> None:
        """Faults of the default config, each told for the first instance that it reaches."""
        if not self._has_default:
            self._tell(Stage.PRESENCE, self._first_without(_every), "missing task config for instance {}")
            return
        default = self._default
        for text in _ports_texts(default.ports, default.executor):
            self._faults.add(Stage.PORTS, text)
        if not default.HasField("command"):
            self._tell(Stage.PRESENCE, self._first_without(_carries_command), NO_COMMAND)
        for carries, rule in self._rules:
            texts = list(rule(default)) if carries(default) else []
            reached = self._first_without(carries) if texts else None
            if reached is not None:
                self._tell_pod_faults(reached, texts)
        if default.controller and self._first_without(_every, start=1) is not None:
            self._faults.add(Stage.CONTROLLER, CONTROLLER_TEXT)
        if self._clashes_with_gang(default):
            reached = self._first_without(_carries_preemption)
            if reached is not None and reached in self._job_gang:
                self._faults.add(Stage.PREEMPTION, GANG_PREEMPTION)

    def _judge_override(self, instance: int, override: task_pb2.TaskConfig) -> None:
        for text in _override_port_texts(override, self._default):
            self._faults.add(Stage.PORTS, text)
        if not self._has_default and not override.HasField("command"):
            self._tell(Stage.PRESENCE, instance, NO_COMMAND)
        for carries, rule in self._rules:
            if carries(override):
                self._tell_pod_faults(instance, rule(override))
        if override.controller and instance > 0:
            self._faults.add(Stage.CONTROLLER, CONTROLLER_TEXT)
        if instance in self._job_gang and self._clashes_with_gang(override):
            self._faults.add(Stage.PREEMPTION, GANG_PREEMPTION)

    def _judge_running_instances(self) -> None:
        if self._config.type == job_pb2.SERVICE:
            for text in _service_sla_texts(self._config.sla):
                self._faults.add(Stage.RUNNING, text)
            return
        sla, count = self._config.sla, self._config.instanceCount
        if sla.maximumRunningInstances > count:
            self._faults.add(Stage.RUNNING, "Job specified MaximumRunningInstances > InstanceCount")
        if sla.minimumRunningInstances > (sla.maximumRunningInstances or count):
            self._faults.add(Stage.RUNNING, "Job specified MinimumRunningInstances > MaximumRunningInstances")

    def _judge_pool(self) -> None:
        if self._bounds is None or self._faults.count:  # amounts are not sound before the rules above hold
            return
        plain = self._first_without(_carries_resource)
        for text in pod_faults(self._config, self._overrides, self._instances, plain, self._bounds):
            self._faults.add(Stage.POOL, text)
        if self._instances.start == 0:  # of a job that grows, the gang exists already
            for text in gang_faults(self._config, self._overrides, self._bounds):
                self._faults.add(Stage.POOL, text)

    def _first_without(self, carries: Carries, start: int = 0) -> int | None:
        """Lowest judged instance that has no override, or one for which ``carries`` is false; None: there is none."""
        for instance in range(max(start, self._instances.start), self._instances.stop):
            override = self._overrides.get(instance)
            if override is None or not carries(override):
                return instance
        return None

    def _clashes_with_gang(self, pod: task_pb2.TaskConfig) -> bool:
        policy = pod.preemptionPolicy.type
        wanted = self._config.sla.preemptible
        return policy != task_pb2.PreemptionPolicy.TYPE_INVALID and wanted != (
            policy == task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE
        )

    def _tell_pod_faults(self, instance: int, texts: Iterable[str]) -> None:
        for text in texts:
            self._faults.add(Stage.POD, f"Invalid config for instance {instance}, {text}")

    def _tell(self, stage: Stage, instance: int | None, text: str) -> None:
        if instance is not None:
            self._faults.add(stage, text.format(instance))


def _service_sla_texts(sla: job_pb2.SlaConfig) -> Iterator[str]:
    for name, value in (
        ("MaximumRunningInstances", sla.maximumRunningInstances),
        ("MinimumRunningInstances", sla.minimumRunningInstances),
        ("MaxRunningTime", sla.maxRunningTime),
    ):
        if value:
            yield f"{name} should be 0 for stateless job"
    if sla.revocable and not sla.preemptible:
        yield "revocable job must be preemptible"


def _every(_: task_pb2.TaskConfig) -> bool:
    return True


def _carries_command(pod: task_pb2.TaskConfig) -> bool:
    return pod.HasField("command")


def _carries_resource(pod: task_pb2.TaskConfig) -> bool:
    return pod.HasField("resource")


def _carries_preemption(pod: task_pb2.TaskConfig) -> bool:
    return pod.HasField("preemptionPolicy")


def _ports_texts(ports: Sequence[task_pb2.PortConfig], executor: mesos_pb2.ExecutorInfo) -> Iterator[str]:
    yield from port_name_fault(ports)
    if executor.type != mesos_pb2.ExecutorInfo.CUSTOM:
        yield from dynamic_port_fault(ports)


def _override_port_texts(override: task_pb2.TaskConfig, default: task_pb2.TaskConfig) -> Iterator[str]:
    has_executor = override.HasField("executor")
    if override.ports or has_executor:
        yield from _ports_texts(
            override.ports or default.ports, override.executor if has_executor else default.executor
        )

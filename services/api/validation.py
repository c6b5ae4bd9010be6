"""Validation of v0 job configs before they are stored. Pure: protos and pool limits in, texts out.

The rules run in stages, and the texts of a stage precede the ones of the next, so the first line is the text that
existing clients know. A config is validated as a whole (all faults, the first ``FAULTS_MAX`` spelled out), in time that
depends on the number of overrides and not of instances: the default config is checked once, an override only in its own
fields, and nothing is merged or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, auto

from peloton.api.cluster_kinds import kind_refusal
from peloton.api.config_bounds import LABELS_MAX, TASKS_PER_JOB_MAX, TEXT_MAX
from peloton.api.convert_layout import layout_faults
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import has_amounts
from peloton.api.secret_values import find_made_secret, has_credential, has_values, has_volume_value
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.wire_faults import missing
from peloton.lifecycle.latency import bounds_refusal
from peloton.model.job import GANG_MEMBERS_MAX
from peloton.model.text import MULTI_LINE, control_character_fault, quote
from services.api.faults import Faults
from services.api.pool_rules import PoolBounds, PoolValidator
from services.api.task_rules import (
    NEVER_PREEMPTED,
    RULES,
    Carries,
    carries_checked_port,
    dynamic_port_fault,
    find_port_faults,
    has_job_reference,
    label_faults,
    port_name_fault,
)

MAX_FAILURES = 100
"""Maximum number of retries; higher numbers are clamped silently, as existing clients expect."""


class Stage(IntEnum):
    """Order in which faults are listed."""

    FORM = auto()
    PORTS = auto()
    PRESENCE = auto()
    CONTROLLER = auto()
    POD = auto()
    PREEMPTION = auto()
    RUNNING = auto()
    OVERRIDES = auto()
    POOL = auto()
    POOL_INSTANCES = auto()
    POOL_GANG = auto()


NO_COMMAND = "missing command info for instance {}"
CONTROLLER_TEXT = "only task 0 can be controller task"
NO_VOLUME = "adding secret volumes directly in config is not allowed"
OWN_VOLUME = "volume is given for one instance: all instances of a service have volumes of one size at one path"
NO_VALUE = (
    "secret values of environment variables and of the config of images belong into the default configuration of one "
    "job, by itself"
)
NO_CREDENTIAL = "credential of an image has a secret, and Mesos does not read it: put the credentials into config"
OF_ANOTHER = "secret {} is one that Peloton makes for the pods of a job: a pod gets those of its own job only"
NO_REFERENCE = "adding secrets directly in config is not allowed: they belong into the request, for all instances"
GANG_PREEMPTION = (
    "can't override the preemption policy of a task which is going to be a part of a gang "
    "having tasks with a different preemption policy"
)


def job_faults(config: job_pb2.JobConfig, bounds: PoolBounds | None, first_instance: int = 0) -> Faults:
    """Return all faults of ``config`` in instances ``first_instance .. instanceCount-1``.

    ``bounds`` are the limits along the path of the job's pool, None to skip the pool rules.
    """
    validator = JobValidator(config, bounds, first_instance)
    if not validator.is_blocked:
        for instance in sorted(config.instanceConfig):
            validator.add(instance, config.instanceConfig[instance])
    return validator.finish()


def clamp_max_failures(config: job_pb2.JobConfig) -> None:
    """Clamp ``restartPolicy.maxFailures`` to MAX_FAILURES, in place, in the default config and all overrides."""
    for pod in (config.defaultConfig, *config.instanceConfig.values()):
        clamp_pod(pod)


def clamp_pod(pod: task_pb2.TaskConfig) -> None:
    if pod.HasField("restartPolicy") and pod.restartPolicy.maxFailures > MAX_FAILURES:
        pod.restartPolicy.maxFailures = MAX_FAILURES


def secret_fault(config: job_pb2.JobConfig, is_new: bool) -> str:
    """Return the reason to reject the config's secrets, or ""; an existing job's config may refer to its own
    secrets."""
    if has_volume_value(config.defaultConfig):
        return NO_VOLUME
    if has_credential(config.defaultConfig):
        return NO_CREDENTIAL
    if has_values(config.defaultConfig):
        return NO_VALUE
    if name := find_made_secret(config.defaultConfig):
        return OF_ANOTHER.format(name)
    if is_new and config.defaultConfig.secrets:
        return NO_REFERENCE
    return next((fault for pod in config.instanceConfig.values() if (fault := secret_pod_fault(pod))), "")


def secret_pod_fault(pod: task_pb2.TaskConfig) -> str:
    """Return the reason to reject the secrets of one instance, or ""; secrets belong to the whole job."""
    if has_volume_value(pod):
        return NO_VOLUME
    if has_credential(pod):
        return NO_CREDENTIAL
    if has_values(pod) or has_job_reference(pod):
        return NO_VALUE
    if name := find_made_secret(pod):
        return OF_ANOTHER.format(name)
    return NO_REFERENCE if pod.secrets else ""


def _form_fault(config: job_pb2.JobConfig) -> str:
    if config.type not in RULES:
        name = job_pb2.JobType.Name(config.type) if config.type in job_pb2.JobType.values() else str(config.type)
        return f"invalid job type: {name}"
    if config.instanceCount > TASKS_PER_JOB_MAX:
        return (
            f"Requested tasks: {config.instanceCount} for job is greater than supported: {TASKS_PER_JOB_MAX} tasks/job"
        )
    if text := _text_fault(config):
        return text
    if not config.IsInitialized():
        return f"job config lacks required fields: {missing(config)}"
    return bounds_refusal({label.key: label.value for label in config.labels})


def _text_fault(config: job_pb2.JobConfig) -> str:
    """Return the reason to reject a name, the description or a label of the job, or ""."""
    for field in ("name", "owningTeam", "owner", "description"):
        text = getattr(config, field)
        if len(text) > TEXT_MAX:
            return f"{field} has {len(text)} characters, at most {TEXT_MAX} are allowed"
        if "\0" in text:
            return f"{field} {quote(text)} contains NUL"
        if fault := control_character_fault(field, text, MULTI_LINE if field == "description" else ""):
            return fault
    for group in config.ldapGroups:
        if fault := control_character_fault("ldapGroups", group):
            return fault
    if len(config.labels) > LABELS_MAX:
        return f"job has {len(config.labels)} labels, at most {LABELS_MAX} are allowed"
    for label in config.labels:
        if (length := len(label.key) + len(label.value)) > TEXT_MAX:
            return f"label {quote(label.key)} has {length} characters, at most {TEXT_MAX} are allowed"
    return next(label_faults(config.labels), "")


def daemon_count_fault(config: job_pb2.JobConfig) -> str:
    """Return the reason to reject the instance count of a new daemon, or ""; an updated one contains the count as
    read."""
    if config.type != job_pb2.DAEMON or not config.instanceCount:
        return ""
    return f"instanceCount is {config.instanceCount}: a daemon has an instance on each host that matches, leave it out"


class JobValidator:
    """Validator of a job whose instance configs are added one by one, by rising instance: ``add`` each, then
    ``finish``.

    It holds no config except the job's own and that of one instance, so large jobs are validated in little memory.
    """

    def __init__(self, config: job_pb2.JobConfig, bounds: PoolBounds | None, first_instance: int = 0) -> None:
        self._config = config
        self._default = config.defaultConfig
        self._has_default = config.HasField("defaultConfig")
        self._is_daemon = config.type == job_pb2.DAEMON
        # A daemon's instances are alike and not known yet: one represents them.
        self._instances = range(1) if self._is_daemon else range(first_instance, config.instanceCount)
        self._rules = RULES.get(config.type, ())
        self._job_gang = range(config.sla.minimumRunningInstances)
        self._reach = Reach(
            self._instances,
            (
                _carries_command,
                _carries_resource,
                _carries_preemption,
                carries_checked_port,
                *(c for c, _ in self._rules),
            ),
        )
        self._of_default = Faults()  # listed before faults of instances
        self._of_instances = Faults()
        self._of_pool = Faults()
        self._pool = PoolValidator(config, bounds) if bounds is not None and not self._is_daemon else None
        self._kinds = bounds.kinds if bounds is not None else frozenset()
        blocking = _form_fault(config)
        self.is_blocked = bool(blocking)
        """Return whether a fault makes further checks misleading or unboundedly expensive."""
        if blocking:
            self._of_default.add(Stage.FORM, blocking)

    @property
    def faults_of_instances(self) -> Faults:
        """Return the faults that are certain before all instances are known."""
        return self._of_instances or self._of_pool

    def add(self, instance: int, override: task_pb2.TaskConfig) -> None:
        if self._is_daemon:
            text = f"instanceConfig is given for instance {instance}: all instances of a daemon are alike"
            self._of_instances.add(Stage.OVERRIDES, text)
        elif instance in self._instances:
            self._reach.add(instance, override)
            self._validate_override(instance, override)
            if self._pool is not None and not self._of_instances:  # otherwise amounts may be invalid
                for text in self._pool.add(instance, override):
                    self._of_pool.add(Stage.POOL_INSTANCES, text)
        elif instance >= self._config.instanceCount:
            count = self._config.instanceCount
            text = f"instanceConfig is given for instance {instance}, instanceCount is {count}"
            self._of_instances.add(Stage.OVERRIDES, text)

    def finish(self) -> Faults:
        if self.is_blocked:
            return self._of_default
        self._reach.finish()
        self._validate_default()
        self._validate_running_instances()
        faults = self._of_default
        faults.extend(self._of_instances)
        if faults or self._pool is None:
            return faults
        plain = self._reach.first(_carries_resource)
        for text in self._pool.plain(plain, self._reach.config_at(_carries_resource)):
            faults.add(Stage.POOL, text)
        faults.extend(self._of_pool)
        if self._instances.start == 0:  # the gang of a growing job exists already
            for text in self._pool.gang():
                faults.add(Stage.POOL_GANG, text)
        return faults

    def _validate_default(self) -> None:
        """Collect faults of the default config, each reported for the first instance that it applies to."""
        faults, reach = self._of_default, self._reach
        if not self._has_default:
            self._add_presence_fault(faults, reach.plain, "missing task config for instance {}")
            return
        default = self._default
        for text in _ports_texts(default.ports, default.executor):
            faults.add(Stage.PORTS, text)
        if not default.HasField("command"):
            self._add_presence_fault(faults, reach.first(_carries_command), NO_COMMAND)
        for carries, rule in self._rules:
            texts = list(rule(default)) if carries(default) else []
            reached = reach.first(carries) if texts else None
            if reached is not None:
                _add_pod_faults(faults, reached, texts)
        texts = list(find_port_faults(default))
        reached = reach.first(carries_checked_port) if texts else None
        if reached is not None:
            _add_pod_faults(faults, reached, texts)
        if reach.plain is not None and (text := kind_refusal(default, self._kinds)):
            _add_pod_faults(faults, reach.plain, [text])
        if default.controller and reach.plain_but_0 is not None:
            faults.add(Stage.CONTROLLER, CONTROLLER_TEXT)
        sla = self._config.sla
        if default.HasField("volume") and (sla.preemptible or sla.revocable) and reach.plain is not None:
            _add_pod_faults(faults, reach.plain, [NEVER_PREEMPTED])
        if self._clashes_with_gang(default):
            reached = reach.first(_carries_preemption)
            if reached is not None and reached in self._job_gang:
                faults.add(Stage.PREEMPTION, GANG_PREEMPTION)

    def _validate_override(self, instance: int, override: task_pb2.TaskConfig) -> None:
        faults = self._of_instances
        if not override.IsInitialized():
            faults.add(Stage.FORM, f"config of instance {instance} lacks required fields: {missing(override)}")
            return
        for text in _override_port_texts(override, self._default):
            faults.add(Stage.PORTS, text)
        if not self._has_default and not override.HasField("command"):
            self._add_presence_fault(faults, instance, NO_COMMAND)
        for carries, rule in self._rules:
            if carries(override):
                _add_pod_faults(faults, instance, rule(override))
        if carries_checked_port(override):
            _add_pod_faults(faults, instance, find_port_faults(override, self._default))
        if text := kind_refusal(override, self._kinds):
            _add_pod_faults(faults, instance, [text])
        if override.controller and instance > 0:
            faults.add(Stage.CONTROLLER, CONTROLLER_TEXT)
        if override.HasField("volume"):
            faults.add(Stage.OVERRIDES, f"Invalid config for instance {instance}, {OWN_VOLUME}")
        if instance in self._job_gang and self._clashes_with_gang(override):
            faults.add(Stage.PREEMPTION, GANG_PREEMPTION)

    def _validate_running_instances(self) -> None:
        faults = self._of_default
        for text in layout_faults(self._config):
            faults.add(Stage.RUNNING, text)
        if self._is_daemon:
            for text in _daemon_sla_texts(self._config.sla):
                faults.add(Stage.RUNNING, text)
            return
        if self._config.type == job_pb2.SERVICE:
            for text in _service_sla_texts(self._config.sla):
                faults.add(Stage.RUNNING, text)
            return
        sla, count = self._config.sla, self._config.instanceCount
        if sla.maximumRunningInstances > count:
            faults.add(Stage.RUNNING, "Job specified MaximumRunningInstances > InstanceCount")
        if sla.minimumRunningInstances > (sla.maximumRunningInstances or count):
            faults.add(Stage.RUNNING, "Job specified MinimumRunningInstances > MaximumRunningInstances")
        if not sla.revocable and sla.minimumRunningInstances > GANG_MEMBERS_MAX:
            faults.add(
                Stage.RUNNING,
                f"Job specified MinimumRunningInstances {sla.minimumRunningInstances} > {GANG_MEMBERS_MAX}, "
                "the most members of a gang",
            )

    def _clashes_with_gang(self, pod: task_pb2.TaskConfig) -> bool:
        policy = pod.preemptionPolicy.type
        wanted = self._config.sla.preemptible
        return policy != task_pb2.PreemptionPolicy.TYPE_INVALID and wanted != (
            policy == task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE
        )

    def _add_presence_fault(self, faults: Faults, instance: int | None, text: str) -> None:
        if instance is not None:
            faults.add(Stage.PRESENCE, text.format(instance))


class Reach:
    """First instance, for each field, that uses the default's value of the field.

    Overrides are added by rising instance; instances without a call have none.
    """

    def __init__(self, instances: range, fields: Iterable[Carries]) -> None:
        self.plain: int | None = None
        """First instance without an override."""
        self.plain_but_0: int | None = None
        """First instance after instance 0 without an override."""
        self._next = instances.start
        self._stop = instances.stop
        self._open = list(dict.fromkeys(fields))
        self._first: dict[Carries, tuple[int, task_pb2.TaskConfig | None]] = {}

    def add(self, instance: int, override: task_pb2.TaskConfig) -> None:
        self._pass_to(instance)
        self._next = instance + 1
        for carries in self._open:
            if not carries(override):
                self._first[carries] = (instance, override)
        if len(self._first) > 0:
            self._open = [carries for carries in self._open if carries not in self._first]

    def finish(self) -> None:
        self._pass_to(self._stop)

    def first(self, carries: Carries) -> int | None:
        return self._first.get(carries, (None, None))[0]

    def config_at(self, carries: Carries) -> task_pb2.TaskConfig | None:
        """Return the override of the first instance; None if it has none."""
        return self._first.get(carries, (None, None))[1]

    def _pass_to(self, instance: int) -> None:
        """Record that instances up to here have no override."""
        if instance <= self._next:
            return
        if self.plain is None:
            self.plain = self._next
            self._first |= dict.fromkeys(self._open, (self._next, None))
            self._open = []
        if self.plain_but_0 is None and instance > 1:
            self.plain_but_0 = max(self._next, 1)


def _add_pod_faults(faults: Faults, instance: int, texts: Iterable[str]) -> None:
    for text in texts:
        faults.add(Stage.POD, f"Invalid config for instance {instance}, {text}")


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


def _daemon_sla_texts(sla: job_pb2.SlaConfig) -> Iterator[str]:
    for name, value in (
        ("maximumRunningInstances", sla.maximumRunningInstances),
        ("minimumRunningInstances", sla.minimumRunningInstances),
        ("maxRunningTime", sla.maxRunningTime),
        ("maximumUnavailableInstances", sla.maximumUnavailableInstances),
        ("preemptible", sla.preemptible),
        ("revocable", sla.revocable),
    ):
        if value:
            yield f"sla has {name}: a daemon runs on each of its hosts for as long as these are there"


def _carries_command(pod: task_pb2.TaskConfig) -> bool:
    return pod.HasField("command")


def _carries_resource(pod: task_pb2.TaskConfig) -> bool:
    return has_amounts(pod)


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

"""Rules over single top-level fields of a v0 TaskConfig, as tables: field -> rule.

A rule checks one config, default or override, that has the field, and yields texts without the instance's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from peloton.api import convert
from peloton.api.cluster_kinds import kind_fault
from peloton.api.config_bounds import (
    AMOUNTS_MAX,
    COMMAND_BYTES_MAX,
    CONTAINER_NAME,
    CONTAINERS_MAX,
    HOST_PREFERENCES_MAX,
    PORT_MAX,
    PREFERENCE_WEIGHT_MAX,
    VOLUME_MB_MAX,
    VOLUME_PATH_MAX,
    check_extended_name,
)
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part, all_parts, has_several, main_name, ports
from peloton.api.secret_values import places_of, refers_to_job
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.lifecycle import discovery
from peloton.lifecycle.constraints import leaves, pod_labels_named
from peloton.model.resources import EXTENDED_AMOUNT_MAX, EXTENDED_KINDS_MAX
from peloton.model.text import MULTI_LINE, control_character_fault, is_printable, quote, shorten

NEVER_PREEMPTED = "a pod with a volume is never preempted: it can be neither preemptible nor revocable"
CONSTRAINT_DEPTH_MAX = 20
"""Maximum nesting of constraints: Protobuf parses messages to a depth of 100, and answers nest deeper than requests."""


PORTS_NAMED_MAX = 10
TEXT_NAMED_MAX = 100
"""Maximum length of texts quoted in errors."""


def port_name_fault(ports: Sequence[task_pb2.PortConfig]) -> Iterator[str]:
    if any(not port.name for port in ports):
        yield "Port name is missing"


def dynamic_port_fault(ports: Sequence[task_pb2.PortConfig]) -> Iterator[str]:
    if any(port.value == 0 and not port.envName for port in ports):
        yield "Env name is missing for dynamic port"


def has_job_reference(pod: task_pb2.TaskConfig) -> bool:
    """Return whether a pod refers to a secret of the job."""
    return any(refers_to_job(place.secret) for place in places_of(pod))


def number(value: float) -> str:
    """Format a double briefly: ``4``, ``0.5``, ``-1``."""
    return f"{value:.15g}"


def _resource(pod: Part) -> Iterator[str]:
    for name, most in AMOUNTS_MAX.items():
        value: float = getattr(pod.resource, name)
        if not math.isfinite(value):
            yield f"{name} {value} is not a finite number"
        elif value < 0:
            yield f"{name} {number(value)} is negative"
        elif value > most:
            yield f"{name} {number(value)} is greater than {number(most)}, the most that a pod can ask"
    extended = pod.resource.extended
    if len(extended) > EXTENDED_KINDS_MAX:
        yield f"extended has {len(extended)} resources, at most {EXTENDED_KINDS_MAX} are allowed"
    for name, amount in sorted(extended.items()):
        if fault := check_extended_name(name):
            yield f"extended: {fault}"
        elif amount > EXTENDED_AMOUNT_MAX:
            yield f"extended: {name} {amount} is greater than {EXTENDED_AMOUNT_MAX}, the most that a pod can ask"


def label_faults(labels: Iterable[peloton_pb2.Label]) -> Iterator[str]:
    """Yield a text for each label whose key or value contains terminal control characters."""
    for label in labels:
        if not is_printable(label.key):
            yield control_character_fault("label", label.key)
        if not is_printable(label.value, MULTI_LINE):
            yield control_character_fault(f"label {quote(label.key)}: value", label.value, MULTI_LINE)


def _name(pod: task_pb2.TaskConfig) -> Iterator[str]:
    if fault := control_character_fault("name", pod.name):
        yield fault


def _labels(pod: task_pb2.TaskConfig) -> Iterator[str]:
    yield from label_faults(pod.labels)
    for label in pod.labels:
        if label.key == discovery.LABEL:
            try:
                discovery.conventions_in(label.value)
            except discovery.UnknownConvention as error:
                yield str(error)


def _ports(pod: task_pb2.TaskConfig) -> Iterator[str]:
    if not pod.otherContainers:  # else they are checked together
        yield from _ports_of(pod.ports)


def _ports_of(ports: Sequence[task_pb2.PortConfig]) -> Iterator[str]:
    users: dict[int, str] = {}
    names: set[str] = set()
    env_names: dict[str, str] = {}
    for port in ports:
        for field, text in (("port name", port.name), ("envName", port.envName)):
            if fault := control_character_fault(field, text):
                yield fault
        if port.value > PORT_MAX:
            yield f"port {quote(port.name)} has value {port.value}, the greatest port is {PORT_MAX}"
        elif port.value and port.value in users:
            yield f"static port {port.value} is asked by both {quote(users[port.value])} and {quote(port.name)}"
        if port.name and port.name in names:
            yield f"port name {quote(port.name)} is used twice"
        if port.envName and port.envName in env_names:
            both = f"{quote(env_names[port.envName])} and {quote(port.name)}"
            yield f"envName {quote(port.envName)} is used by both {both}"
        users.setdefault(port.value, port.name)
        names.add(port.name)
        env_names.setdefault(port.envName, port.name)


def _command(pod: Part) -> Iterator[str]:
    length = len(pod.command.value.encode())
    if length > COMMAND_BYTES_MAX:
        yield f"command has {length} bytes, a host takes at most {COMMAND_BYTES_MAX}"
    if "\0" in pod.command.value:
        yield "command contains NUL"
    for index, variable in enumerate(pod.command.environment.variables):
        if not variable.name:
            yield f"environment variable {index} of the command has no name"
        elif "=" in variable.name or "\0" in variable.name:
            yield f"environment variable {index} of the command has a name with '=' or NUL: {quote(variable.name)}"


def _nesting(constraint: task_pb2.Constraint) -> int:
    parts = [*constraint.andConstraint.constraints, *constraint.orConstraint.constraints]
    if constraint.HasField("notConstraint"):
        parts.append(constraint.notConstraint.constraint)
    return 1 + max((_nesting(part) for part in parts), default=0)


def _constraint(pod: task_pb2.TaskConfig | task_pb2.HostPreference) -> Iterator[str]:
    if (depth := _nesting(pod.constraint)) > CONSTRAINT_DEPTH_MAX:
        yield f"constraint has {depth} constraints in each other, at most {CONSTRAINT_DEPTH_MAX} are allowed"
        return
    try:
        convert.constraint(pod.constraint)
    except InvalidArgument as fault:
        yield fault.message


def _host_preferences(pod: task_pb2.TaskConfig) -> Iterator[str]:
    if (count := len(pod.hostPreferences)) > HOST_PREFERENCES_MAX:
        yield f"hostPreferences has {count} preferences, at most {HOST_PREFERENCES_MAX} are allowed"
        return
    for order, one in enumerate(pod.hostPreferences):
        name = f"hostPreferences[{order}]"
        if not 1 <= one.weight <= PREFERENCE_WEIGHT_MAX:
            yield f"{name}: weight is {one.weight}, want 1 to {PREFERENCE_WEIGHT_MAX}"
        if faults := list(_constraint(one)):
            yield from (f"{name}: {fault}" for fault in faults)
            continue
        rule = convert.constraint(one.constraint)
        if not any(leaves(rule)):
            yield f"{name} names no label of hosts"
        elif pod_labels_named(rule):
            yield f"{name} names a label of pods: hosts are preferred by labels of hosts alone"


def _containers(pod: task_pb2.TaskConfig) -> Iterator[str]:
    """Check a pod with several containers; a container's faults are prefixed with its name."""
    count = 1 + len(pod.otherContainers) + len(pod.initContainers)
    if count > CONTAINERS_MAX:
        yield f"the pod has {count} containers, at most {CONTAINERS_MAX} are allowed"
        return
    if text := kind_fault(pod):
        yield text
    names = [main_name(pod), *(part.name for part in (*pod.otherContainers, *pod.initContainers))]
    for name in dict.fromkeys(names):
        if not CONTAINER_NAME.fullmatch(name):
            yield f"container name {quote(name)}: want 1 to 63 of a-z, 0-9 and -, no - at the ends"
        elif names.count(name) > 1:
            yield f"container name {quote(name)} is used {names.count(name)} times"
    yield from _ports_of(list(ports(pod)))
    for part in (*pod.otherContainers, *pod.initContainers):
        for text in _container(part):
            yield f"container {shorten(part.name)}: {text}"
    for first in pod.initContainers:
        if first.ports or first.HasField("healthCheck") or first.HasField("readinessCheck"):
            yield f"init container {shorten(first.name)} has ports or checks, which none may have"


def _container(part: task_pb2.ContainerConfig) -> Iterator[str]:
    if not part.HasField("command") and not convert.image_of(part):
        yield "it has neither a command nor an image"
    yield from port_name_fault(part.ports)
    yield from dynamic_port_fault(part.ports)
    yield from _resource(part)
    yield from _command(part)
    for check, name in ((part.healthCheck, "health check"), (part.readinessCheck, "readiness check")):
        yield from _check(check, name)
    yield from find_port_faults(part)


def _volume(pod: task_pb2.TaskConfig) -> Iterator[str]:
    path, size_mb = pod.volume.containerPath, pod.volume.sizeMB
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or len(path) > VOLUME_PATH_MAX or {"", ".", ".."} & {*parts}:
        yield (
            f"volume has containerPath {quote(path)}: want a path in the sandbox like 'data', with at "
            f"most {VOLUME_PATH_MAX} characters, that does not begin with / and has no empty part, no . and no .."
        )
    if not 0 < size_mb <= VOLUME_MB_MAX:
        yield f"volume has sizeMB {size_mb}, want 1 to {VOLUME_MB_MAX}"
    if pod.revocable or pod.preemptionPolicy.type == task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE:
        yield NEVER_PREEMPTED


def _batch_volume(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "volume is given for a batch job: only services have volumes"


def _daemon_volume(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "volume is given for a daemon: only services have volumes"


def _daemon_preemption(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "preemption policy is given for a daemon: pods of daemons are never evicted"


def _daemon_terms(pod: task_pb2.TaskConfig) -> Iterator[str]:
    for name in ("revocable", "controller"):
        if getattr(pod, name):
            yield f"{name} is given for a daemon: its pods are ordinary ones, and alike"


def _has_extended(pod: task_pb2.TaskConfig) -> bool:
    return any(part.resource.extended for part in all_parts(pod))


def _daemon_extended(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "extended resources are given for a daemon: its pods take no part in pools, which share these"


def _daemon_constraint(pod: task_pb2.TaskConfig) -> Iterator[str]:
    """Check that the constraint does not depend on pods: a daemon's host matches whatever runs there."""
    faults = list(_constraint(pod))
    yield from faults
    if not faults and pod_labels_named(convert.constraint(pod.constraint)):
        yield "constraint on labels of pods is given for a daemon: its hosts match by labels of hosts alone"


def _daemon_preferences(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "hostPreferences is given: a daemon has one instance on each host that matches, leave it out"


def _batch_health_check(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "Batch job task should not set health check "


def _batch_executor(_: task_pb2.TaskConfig) -> Iterator[str]:
    yield "Batch job task should not include executor config"


def _service_preemption(pod: task_pb2.TaskConfig) -> Iterator[str]:
    if pod.preemptionPolicy.killOnPreempt:
        yield "Task preemption policy should be false for stateless job"


def _service_executor(pod: task_pb2.TaskConfig) -> Iterator[str]:
    if pod.executor.type != mesos_pb2.ExecutorInfo.CUSTOM:
        yield "Unsupported type in executor config"
    elif not pod.executor.data:
        yield "Data field not set in executor config"


def carries_checked_port(pod: task_pb2.TaskConfig) -> bool:
    return len(pod.ports) > 0 or pod.HasField("healthCheck") or pod.HasField("readinessCheck")


def find_port_faults(pod: Part, default: Part | None = None) -> Iterator[str]:
    """Yield faults of HTTP checks that name a port which their container lacks.

    ``default`` provides the fields that ``pod``, an override, leaves out.
    """
    rest = pod if default is None else default
    health = pod.healthCheck if pod.HasField("healthCheck") else rest.healthCheck
    readiness = pod.readinessCheck if pod.HasField("readinessCheck") else rest.readinessCheck
    names = [port.name for port in pod.ports or rest.ports]
    known = f"known ports of its container: {', '.join(names[:PORTS_NAMED_MAX])}" if names else "it has no ports"
    for check, name in ((health, "health check"), (readiness, "readiness check")):
        asked = check.httpCheck.portName
        is_http = check.enabled and check.type == task_pb2.HealthCheckConfig.HTTP
        if is_http and asked and asked not in names:
            yield f"{name} of type HTTP has portName {asked[:TEXT_NAMED_MAX]!r}; {known}"


def _service_health_check(pod: task_pb2.TaskConfig) -> Iterator[str]:
    yield from _check(pod.healthCheck, "health check")


def _readiness(pod: task_pb2.TaskConfig) -> Iterator[str]:
    yield from _check(pod.readinessCheck, "readiness check")


def _check(check: task_pb2.HealthCheckConfig, name: str) -> Iterator[str]:
    """Check a health check: a pod whose check cannot run would never have a health state."""
    if not check.enabled:
        return
    if check.type == task_pb2.HealthCheckConfig.COMMAND:
        if not check.commandCheck.command:
            yield f"{name} of type COMMAND has no command"
    elif check.type == task_pb2.HealthCheckConfig.HTTP:
        http, asked = check.httpCheck, check.httpCheck.portName
        if asked and http.port:
            yield f"{name} of type HTTP has port {http.port} and portName {asked[:TEXT_NAMED_MAX]!r}, want one of them"
        elif not asked and not 0 < http.port <= PORT_MAX:
            yield f"{name} of type HTTP has port {http.port}, want 1 to {PORT_MAX}, or a portName"
    else:
        known = check.type in task_pb2.HealthCheckConfig.Type.values()
        kind = task_pb2.HealthCheckConfig.Type.Name(check.type) if known else str(check.type)
        yield f"{name} has type {kind}, want COMMAND or HTTP"


Carries = Callable[[task_pb2.TaskConfig], bool]
Rule = Callable[[task_pb2.TaskConfig], Iterator[str]]

# (whether an override has the field itself, rule), in the order in which faults of one instance are listed.
_OF_EVERY_TYPE: tuple[tuple[Carries, Rule], ...] = (
    (lambda pod: bool(pod.name), _name),
    (lambda pod: len(pod.labels) > 0, _labels),
    (lambda pod: pod.HasField("resource"), _resource),
    (lambda pod: len(pod.ports) > 0, _ports),
    (lambda pod: pod.HasField("command"), _command),
    (lambda pod: pod.HasField("constraint"), _constraint),
    (lambda pod: len(pod.hostPreferences) > 0, _host_preferences),
    (has_several, _containers),
    (lambda pod: pod.HasField("readinessCheck"), _readiness),
)
RULES: dict[int, tuple[tuple[Carries, Rule], ...]] = {
    job_pb2.BATCH: (
        (lambda pod: pod.HasField("healthCheck"), _batch_health_check),
        (lambda pod: pod.HasField("executor"), _batch_executor),
        (lambda pod: pod.HasField("volume"), _batch_volume),
        *_OF_EVERY_TYPE,
    ),
    job_pb2.SERVICE: (
        (lambda pod: pod.HasField("preemptionPolicy"), _service_preemption),
        (lambda pod: pod.HasField("executor"), _service_executor),
        (lambda pod: pod.HasField("healthCheck"), _service_health_check),
        (lambda pod: pod.HasField("volume"), _volume),
        *_OF_EVERY_TYPE,
    ),
    job_pb2.DAEMON: (
        (lambda pod: pod.revocable or pod.controller, _daemon_terms),
        (_has_extended, _daemon_extended),
        (lambda pod: pod.HasField("preemptionPolicy"), _daemon_preemption),
        (lambda pod: pod.HasField("executor"), _service_executor),
        (lambda pod: pod.HasField("healthCheck"), _service_health_check),
        (lambda pod: pod.HasField("volume"), _daemon_volume),
        (lambda pod: pod.HasField("constraint"), _daemon_constraint),
        (lambda pod: len(pod.hostPreferences) > 0, _daemon_preferences),
        *(rule for rule in _OF_EVERY_TYPE if rule[1] not in (_constraint, _host_preferences)),
    ),
}
"""Rules by type of job."""

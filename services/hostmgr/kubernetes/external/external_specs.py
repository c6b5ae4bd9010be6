"""External pods: their requirements in Peloton's terms, or why Peloton cannot place them.

A supported requirement becomes a constraint. An unsupported one is refused where Peloton places the pod, so that it is
never misplaced; of a gated pod it is left to the scheduler that places it. A preferred node affinity, and a taint with
``PreferNoSchedule``, become preferences for hosts; other preferences (``ScheduleAnyway``, those for other pods) are
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from peloton.api.config_bounds import HOST_PREFERENCES_MAX, PREFERENCE_WEIGHT_MAX
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.constraints import EXCLUSIVE_LABEL, HOSTNAME_LABEL
from peloton.lifecycle.label_tests import EXISTS, LABEL_TEST
from peloton.model.host import CLUSTER_LABEL
from peloton.model.ids import JobId, parse_job_id
from peloton.model.resources import EXTENDED_AMOUNT_MAX, RESOURCE_KINDS
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.gate import is_by_gate
from services.hostmgr.kubernetes.nodes.nodes import (
    SOFT_TAINTS_LABEL,
    TAINTS_LABEL,
    Taints,
    is_soft,
    taints_text,
    tolerates,
)
from services.hostmgr.kubernetes.pods.statuses import is_extended, sum_occupied

POOL = "peloton.io/pool"
"""Resource pool of a pod or a namespace: as an annotation its path (``/team/dev``); as a label, whose value may have no
slash, its names joined by dots (``team.dev``)."""
QUEUE = "kueue.x-k8s.io/queue-name"
GANG_SIZE = "peloton.io/gang-size"
PRIORITY = "peloton.io/priority"
PREEMPTIBLE = "peloton.io/preemptible"
GANG_SIZE_MAX = 10_000
PRIORITY_MAX = 2**31 - 1
DIGITS_MAX = 10
GRACE_S, GRACE_MAX_S = 30, 2**31 - 1
"""Grace period of a pod that names none, and the longest that a configuration holds."""
AMOUNT_MAX = 2**40
"""Limit in thousandths or MiB, as for jobs of the API: no host has more, and storage can hold sums of it."""
_KNOWN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"})
_KNOWN_VOLUMES = frozenset(
    {"name", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "image", "csi"}
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GATE_PAGE = "docs/kubernetes/gate.md"
_REPLICATED = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of owners whose pods are replicas, which go to different nodes while these have free resources."""
_EQUAL = task_pb2.LabelConstraint.CONDITION_EQUAL
_LESS = task_pb2.LabelConstraint.CONDITION_LESS_THAN


class Refused(ValueError):
    """Peloton does not place this pod; the text is the reason."""


def _refuse(what: str) -> Refused:
    return Refused(f"{what}; admission by gate takes it: see {GATE_PAGE}")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner whose pods form one job: the controller of the pod, or the pod itself."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"

    @property
    def job_id(self) -> JobId:
        """Return the job's id. Raises Refused."""
        try:
            return parse_job_id(self.uid)
        except ValueError:
            raise Refused(f"the uid {self.uid!r} of {self.kind} {self.name} is no UUID") from None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def controller_of(thing: Json) -> Owner | None:
    """Return the controller that created this object and replaces it; None if it has none."""
    meta = thing["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return Owner(owner["kind"], meta["namespace"], owner["name"], owner["uid"], owner["apiVersion"])
    return None


def owner_of_bare_pod(pod: Json) -> Owner:
    meta = pod["metadata"]
    return Owner("Pod", meta["namespace"], meta["name"], meta["uid"])


def pool_of_pod(pod: Json) -> str:
    """Return the pool that a pod names; empty if it names none. Only the label of a gated pod counts, which the
    admission policy sets and protects."""
    return str((pod["metadata"].get("labels") or {}).get(POOL) or "") if is_by_gate(pod) else pool_named(pod)


def pool_named(thing: Json) -> str:
    """Return the pool that a pod or a namespace names, as a path or as names joined by dots; empty if it names
    none."""
    meta = thing["metadata"]
    own = (meta.get("annotations") or {}).get(POOL) or (meta.get("labels") or {}).get(POOL)
    return str(own or "")


def queue_named(pod: Json) -> str:
    """Return the queue of Kueue that a pod names, which stands for the pool of that name; empty if it names none, and
    for gated pods, whose pool is in the label that the policy protects."""
    return "" if is_by_gate(pod) else str((pod["metadata"].get("labels") or {}).get(QUEUE) or "")


def config_of(
    pod: Json, owner: Owner, cluster: str, taints: Collection[Taints] = (), group_size: int = 1
) -> job_pb2.JobConfig:
    """Return the configuration without the pool. ``taints`` are the different ones of nodes, ``group_size`` is that of
    the pod's group. Raises Refused."""
    spec, meta = pod["spec"], pod["metadata"]
    if not is_by_gate(pod):
        _refuse_unknown_fields(spec)
    priority = read_number(meta, PRIORITY, 0, PRIORITY_MAX, max(int(spec.get("priority") or 0), 0))
    gang_size = read_number(meta, GANG_SIZE, 1, GANG_SIZE_MAX, group_size)
    if gang_size > GANG_SIZE_MAX:
        raise Refused(f"{owner.title} starts {gang_size} pods together, more than {GANG_SIZE_MAX}")
    preemptible = label_or_annotation(meta, PREEMPTIBLE) or "true"
    if preemptible not in ("true", "false"):
        raise Refused(f"{PREEMPTIBLE}={preemptible!r}: want true or false")
    config = job_pb2.JobConfig(
        name=owner.title,
        type=job_pb2.EXTERNAL,
        owningTeam=owner.namespace,
        description=f"{owner.title} of the Kubernetes cluster {cluster}; its pods are made there",
    )
    config.sla.priority, config.sla.preemptible = min(priority, PRIORITY_MAX), preemptible == "true"
    config.sla.minimumRunningInstances = gang_size
    labels = {"cluster": cluster, "namespace": owner.namespace, "kind": owner.kind, "name": owner.name}
    for key, value in labels.items():
        config.labels.add(key=f"peloton.io/{key}", value=value)
    if owner.kind in _REPLICATED and not is_by_gate(pod):
        config.placement.spread.add(label=HOSTNAME_LABEL, maxSkew=1, soft=True)
    _fill(config.defaultConfig, pod, cluster, taints)
    return config


def _fill(task: task_pb2.TaskConfig, pod: Json, cluster: str, taints: Collection[Taints]) -> None:
    spec = pod["spec"]
    try:
        asked = sum_occupied(pod)
    except ValueError as error:
        raise Refused(str(error)) from None
    for kind, wanted, unit in zip(RESOURCE_KINDS, asked, ("m", "Mi", "Mi", "m"), strict=True):
        if wanted > AMOUNT_MAX:
            raise Refused(f"it asks for {wanted}{unit} of {kind}, more than {AMOUNT_MAX}{unit}")
    for kind, wanted in asked.extended:
        if wanted > EXTENDED_AMOUNT_MAX:
            raise Refused(f"it asks for {wanted} of {kind}, more than {EXTENDED_AMOUNT_MAX}")
    task.name = "pod"
    task.resource.cpuLimit, task.resource.gpuLimit = asked.cpu_milli / 1000, asked.gpu_milli / 1000
    task.resource.memLimitMb, task.resource.diskLimitMb = asked.memory_mib, asked.disk_mib
    task.resource.extended.update(asked.extended)
    task.killGracePeriodSeconds = min(max(int(spec.get("terminationGracePeriodSeconds", GRACE_S)), 0), GRACE_MAX_S)
    task.preemptionPolicy.killOnPreempt = True  # its owner creates another one
    rules = [_host(CLUSTER_LABEL, cluster)]
    rules += [_host(key, value) for key, value in sorted((spec.get("nodeSelector") or {}).items())]
    rules += _affinity(spec.get("affinity") or {}, is_whole=not is_by_gate(pod))
    tolerations = spec.get("tolerations") or ()
    hard = [each for each in taints if not is_soft(each)]
    rules += _not_on_untolerated(tolerations, hard) if is_by_gate(pod) else _on_tolerated(tolerations, hard)
    if not is_by_gate(pod):
        preferences = [*_avoid(tolerations, filter(is_soft, taints)), *_read_preferences(spec.get("affinity") or {})]
        task.hostPreferences.extend(preferences[:HOST_PREFERENCES_MAX])
    task.constraint.type = task_pb2.Constraint.AND_CONSTRAINT
    task.constraint.andConstraint.constraints.extend(rules)


# -- supported fields -------------------------------------------------------------------------------------------------


def _host(key: str, value: str, condition: int = _EQUAL) -> task_pb2.Constraint:
    rule = task_pb2.Constraint(type=task_pb2.Constraint.LABEL_CONSTRAINT)
    rule.labelConstraint.kind = task_pb2.LabelConstraint.HOST
    rule.labelConstraint.condition = condition  # type: ignore[assignment]
    rule.labelConstraint.label.key, rule.labelConstraint.label.value = key, value
    rule.labelConstraint.requirement = 1
    return rule


def _not_on_untolerated(tolerations: Collection[Json], taints: Collection[Taints]) -> Iterator[task_pb2.Constraint]:
    """Yield constraints that exclude hosts whose taints the pod does not tolerate. A pod that tolerates some names the
    exclusive label, so that it may be on hosts that no other pods use."""
    for each in sorted(taints):
        if not tolerates(tolerations, each):
            yield _host(TAINTS_LABEL, taints_text(each), _LESS)
    if any(tolerates(tolerations, each) for each in taints):
        yield _host(EXCLUSIVE_LABEL, "none", _LESS)


def _on_tolerated(tolerations: Collection[Json], taints: Collection[Taints]) -> Iterator[task_pb2.Constraint]:
    """Yield constraints that allow hosts without taints, or with those of ``taints`` that the pod tolerates. Hosts
    whose taints are unknown yet are excluded: no scheduler checks them afterwards."""
    known = [one for one in tolerations if one.get("operator") in (None, "", "Equal", "Exists")]
    tolerated = [each for each in sorted(taints) if tolerates(known, each)]
    if not any(map(_is_boundless, known)):
        free = _host(LABEL_TEST + TAINTS_LABEL, EXISTS, _LESS)
        yield _any([free, *(_host(TAINTS_LABEL, taints_text(each)) for each in tolerated)])
    if tolerated:
        yield _host(EXCLUSIVE_LABEL, "none", _LESS)


def _is_boundless(toleration: Json) -> bool:
    return toleration.get("operator") == "Exists" and not toleration.get("key") and not toleration.get("effect")


def _all(rules: list[task_pb2.Constraint]) -> task_pb2.Constraint:
    whole = task_pb2.Constraint(type=task_pb2.Constraint.AND_CONSTRAINT)
    whole.andConstraint.constraints.extend(rules)
    return rules[0] if len(rules) == 1 else whole


def _any(rules: list[task_pb2.Constraint]) -> task_pb2.Constraint:
    whole = task_pb2.Constraint(type=task_pb2.Constraint.OR_CONSTRAINT)
    whole.orConstraint.constraints.extend(rules)
    return rules[0] if len(rules) == 1 else whole


def _affinity(affinity: Json, is_whole: bool) -> Iterator[task_pb2.Constraint]:
    """Yield the constraints of the affinity on labels of nodes. Unless it ``is_whole``, unsupported parts are left
    out: the result allows more nodes than the affinity, and never fewer."""
    for kind in ("podAffinity", "podAntiAffinity"):
        if is_whole and (affinity.get(kind) or {}).get(_REQUIRED):
            raise _refuse(f"Peloton does not know {kind}.{_REQUIRED}")
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    if required:
        terms = [[*_term(term, is_whole)] for term in required.get("nodeSelectorTerms") or ()]
        if terms and all(terms):
            yield _any([_all(term) for term in terms])


def _term(term: Json, is_whole: bool) -> Iterator[task_pb2.Constraint]:
    fields, expressions = term.get("matchFields") or (), term.get("matchExpressions") or ()
    if is_whole and not fields and not expressions:
        raise Refused("a term of the node affinity is empty: it matches no node")
    for each in fields:
        if each["key"] == "metadata.name" and each["operator"] in ("In", "NotIn"):
            yield from _expression({**each, "key": HOSTNAME_LABEL})
        elif is_whole:
            raise _refuse(f"Peloton does not know the field {each['key']} with {each['operator']} of an affinity")
    for each in expressions:
        if each["operator"] in _OPERATORS:
            yield from _expression(each)
        elif is_whole:
            raise _refuse(f"Peloton does not know the operator {each['operator']} of a node affinity")


def _read_preferences(affinity: Json) -> list[task_pb2.HostPreference]:
    """Return what the affinity prefers of the labels of a node, the heaviest first. A term that is empty, or that
    Peloton does not know, says nothing."""
    found = []
    for each in (affinity.get("nodeAffinity") or {}).get(_PREFERRED) or ():
        with suppress(Refused):
            rules = [*_term(each["preference"], is_whole=True)]
            found.append(task_pb2.HostPreference(weight=each["weight"], constraint=_all(rules)))
    return sorted(found, key=lambda one: -one.weight)


def _avoid(tolerations: Collection[Json], taints: Iterable[Taints]) -> Iterator[task_pb2.HostPreference]:
    """Yield that the pod prefers hosts without those of the soft ``taints`` that it does not tolerate."""
    rules = [
        _host(SOFT_TAINTS_LABEL, taints_text(each), _LESS)
        for each in sorted(taints)
        if not tolerates(tolerations, each)
    ]
    if rules:
        yield task_pb2.HostPreference(weight=PREFERENCE_WEIGHT_MAX, constraint=_all(rules))


_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def _expression(expression: Json) -> Iterator[task_pb2.Constraint]:
    """Yield the constraints of an expression with one of ``_OPERATORS``."""
    key: str = expression["key"]
    values: Sequence[str] = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            yield _any([_host(key, value) for value in values])
        case "NotIn":
            yield from (_host(key, value, _LESS) for value in values)
        case "Exists":
            yield _host(LABEL_TEST + key, EXISTS)
        case "DoesNotExist":
            yield _host(LABEL_TEST + key, EXISTS, _LESS)
        case "Gt" | "Lt" as relation:
            yield _host(LABEL_TEST + key, f"{'>' if relation == 'Gt' else '<'} {values[0]}")


# -- refused fields ---------------------------------------------------------------------------------------------------


def _refuse_unknown_fields(spec: Json) -> None:
    for rule in spec.get("topologySpreadConstraints") or ():
        if rule.get("whenUnsatisfiable") != "ScheduleAnyway":
            raise _refuse("Peloton does not know topologySpreadConstraints with DoNotSchedule")
    if spec.get("resourceClaims"):
        raise _refuse("Peloton does not know resourceClaims")
    for volume in spec.get("volumes") or ():
        if unknown := sorted(volume.keys() - _KNOWN_VOLUMES):
            raise _refuse(f"volume {volume['name']}: Peloton does not know where a {unknown[0]} is")
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                raise _refuse(f"container {container['name']}: Peloton does not assign host ports to external pods")
        _refuse_resources(f"container {container['name']}: ", _resource_names(container))
    _refuse_resources("", _resource_names(spec) | {*(spec.get("overhead") or ())})


def _resource_names(part: Json) -> set[str]:
    """Return the resources requested by a container, or by the pod as a whole."""
    amounts = part.get("resources") or {}
    return {*(amounts.get("requests") or ()), *(amounts.get("limits") or ())}


def _refuse_resources(whose: str, asked: set[str]) -> None:
    if unknown := sorted(name for name in asked - _KNOWN_RESOURCES if not is_extended(name)):
        raise _refuse(f"{whose}Peloton does not know the resource {unknown[0]}")


# -- labels ------------------------------------------------------------------------------------------------------------


def label_or_annotation(meta: Json, key: str) -> str:
    return str((meta.get("labels") or {}).get(key) or (meta.get("annotations") or {}).get(key) or "")


def read_number(meta: Json, key: str, least: int, most: int, default: int) -> int:
    """Return the number that a label or an annotation has. Raises Refused."""
    text = label_or_annotation(meta, key)
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    if not (is_number and least <= int(text) <= most):
        raise Refused(f"{key}={text!r}: want a number from {least} to {most}")
    return int(text)


def age_key(pod: Json) -> tuple[str, str]:
    """Return the key that sorts pods by age, the oldest first."""
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["uid"]

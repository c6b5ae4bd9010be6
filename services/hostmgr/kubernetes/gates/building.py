"""Parts of the objects of admission policies: options, expressions, policies and bindings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.external.gate import GATE
from services.hostmgr.kubernetes.pods.launches import SCHEDULER_NAME
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind

API = "admissionregistration.k8s.io/v1"
FAIL, IGNORE = "Fail", "Ignore"
UNGATED_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "peloton-system")
"""Namespaces that the policies never match, whatever labels they have."""
IS_GRANTED = "authorizer.group('peloton.io').resource('admissions').check('grant').allowed()"
IS_PLACED_BY_PELOTON = f"(has(object.spec.schedulerName) && object.spec.schedulerName == '{SCHEDULER_NAME}')"
_MANAGED_BY = {"app.kubernetes.io/managed-by": "peloton"}


@dataclass(frozen=True, slots=True)
class Options:
    """``failure_policy`` decides about pods that a policy cannot evaluate: Fail rejects them, Ignore lets them pass
    without the gate. ``suffix`` makes policies for a trial, with names, a label and a gate of their own. ``owners`` are
    the kinds that are held suspended; the pods of all others are gated. ``nodes`` are labels of the nodes that admitted
    pods may use; empty: all nodes."""

    failure_policy: str = FAIL
    suffix: str = ""
    owners: tuple[OwnerKind, ...] = KINDS
    nodes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.failure_policy not in (FAIL, IGNORE):
            raise InvalidArgument(f"failure policy {self.failure_policy!r}: want {FAIL} or {IGNORE}")

    @property
    def pool(self) -> str:
        """Return the label that names a pool."""
        return POOL + self.suffix

    @property
    def gate(self) -> str:
        return GATE + self.suffix


def pool_variables(options: Options) -> list[Json]:
    """Return the variables of which ``pool`` is that of the namespace, or one below it that the object names."""
    in_labels = "has({0}.metadata.labels) && '{1}' in {0}.metadata.labels ? {0}.metadata.labels['{1}'] : ''"
    pool = (
        "variables.ofNamespace == '' || variables.ofObject.startsWith(variables.ofNamespace + '.') "
        "? variables.ofObject : variables.ofNamespace"
    )
    return [
        {"name": "ofNamespace", "expression": in_labels.format("namespaceObject", options.pool)},
        {"name": "ofObject", "expression": in_labels.format("object", options.pool)},
        {"name": "pool", "expression": pool},
    ]


def has_all(name: str, path: str) -> str:
    """Return the expression that an object has the field of this path, and all above it."""
    fields = path.split(".")
    return " && ".join(f"has({name}.{'.'.join(fields[:count])})" for count in range(1, len(fields) + 1))


def is_kept(where: str, key: str) -> str:
    """Return the expression that a label or annotation is that of the old object."""

    def value(name: str) -> str:
        return f"({has_all(name, where)} && '{key}' in {name}.{where} ? {name}.{where}['{key}'] : '')"

    return f"{value('object')} == {value('oldObject')}"


def make_policy(kind: str, name: str, options: Options, rules: Sequence[Json], **spec: object) -> Json:
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*UNGATED_NAMESPACES]}
    constraints = {"namespaceSelector": {"matchExpressions": [elsewhere]}, "resourceRules": [*rules]}
    meta = {"name": name + options.suffix, "labels": _MANAGED_BY}
    body = {"failurePolicy": options.failure_policy, "matchConstraints": constraints, **spec}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": body}


def bind_twice(kind: str, policy: str, options: Options, what: str = "pods") -> list[Json]:
    """Bind to all objects of namespaces with a pool, and to those of others that name a pool themselves."""
    others = {**_of_namespaces("DoesNotExist", options), **of_objects(options)}
    return [
        bind(kind, policy, "", _of_namespaces("Exists", options), options),
        bind(kind, policy, f"-labelled-{what}", others, options),
    ]


def _of_namespaces(operator: str, options: Options) -> Json:
    return {"namespaceSelector": {"matchExpressions": [{"key": options.pool, "operator": operator}]}}


def of_objects(options: Options) -> Json:
    """Return the rule of a binding for objects that name a pool."""
    return {"objectSelector": {"matchExpressions": [{"key": options.pool, "operator": "Exists"}]}}


def bind(kind: str, policy: str, more: str, matched: Json, options: Options) -> Json:
    spec: Json = {"policyName": policy + options.suffix, "matchResources": matched}
    if kind == "ValidatingAdmissionPolicyBinding":
        spec["validationActions"] = ["Deny"]
    meta = {"name": f"{policy}{more}{options.suffix}", "labels": _MANAGED_BY}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}

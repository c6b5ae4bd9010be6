"""Admission policies of the gate: pure functions that return the objects of Kubernetes.

One policy adds the gate to new pods. Two others reject what would pass it: a pod without it, and the removal of the
gate or of a mark that Peloton relies on. The right to pass is RBAC's: the verb ``grant`` on ``admissions.peloton.io``,
which Peloton's host manager has, and administrators of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.external_specs import GANG_SIZE, POOL
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, FITS_ON, GATE
from services.hostmgr.kubernetes.pods.launches import RUN, SCHEDULER_NAME

API = "admissionregistration.k8s.io/v1"
GATE_POLICY, CREATION_POLICY, CHANGE_POLICY = "peloton-gate", "peloton-gate-creation", "peloton-gate-change"
FAIL, IGNORE = "Fail", "Ignore"
UNTOUCHED = ("kube-system", "kube-public", "kube-node-lease", "peloton-system")
"""Namespaces that the policies never match, whatever labels they have."""
DAEMON_SET_CONTROLLERS = ("system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager")
IS_GRANTED = "authorizer.group('peloton.io').resource('admissions').check('grant').allowed()"
_MANAGED_BY = {"app.kubernetes.io/managed-by": "peloton"}
_HAS_NO_NODE = "(!has(object.spec.nodeName) || object.spec.nodeName == '')"
_IS_OF_DAEMON_SET = (
    "(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists("
    "o, o.kind == 'DaemonSet' && o.apiVersion.startsWith('apps/') && has(o.controller) && o.controller))"
)
_IS_PLACED_BY_PELOTON = f"(has(object.spec.schedulerName) && object.spec.schedulerName == '{SCHEDULER_NAME}')"


@dataclass(frozen=True, slots=True)
class Options:
    """``failure_policy`` decides about pods that a policy cannot evaluate: Fail rejects them, Ignore lets them pass
    without the gate. ``suffix`` makes policies for a trial, with names, a label and a gate of their own."""

    failure_policy: str = FAIL
    suffix: str = ""

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


def make_policies(options: Options) -> list[Json]:
    return [_gate_policy(options), _creation_policy(options), _change_policy(options)]


def make_bindings(options: Options) -> list[Json]:
    """Return the bindings, without which a policy has no effect."""
    return [
        *_bind_twice("MutatingAdmissionPolicyBinding", GATE_POLICY, options),
        *_bind_twice("ValidatingAdmissionPolicyBinding", CREATION_POLICY, options),
        _bind("ValidatingAdmissionPolicyBinding", CHANGE_POLICY, "", _of_pods("Exists", options), options),
    ]


def path_of(made: Json) -> str:
    """Return the path of the object in the API."""
    kind: str = made["kind"]
    plural = f"{kind[:-1]}ies" if kind.endswith("Policy") else f"{kind}s"
    return f"/apis/{API}/{plural.lower()}/{made['metadata']['name']}"


# -- policies ---------------------------------------------------------------------------------------------------------


def _gate_policy(options: Options) -> Json:
    in_labels = "has({0}.metadata.labels) && '{1}' in {0}.metadata.labels ? {0}.metadata.labels['{1}'] : ''"
    pool = (
        "variables.ofNamespace == '' || variables.ofPod.startsWith(variables.ofNamespace + '.') "
        "? variables.ofPod : variables.ofNamespace"
    )
    change = (
        f"Object{{metadata: Object.metadata{{labels: {{'{options.pool}': variables.pool}}}}, "
        f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{options.gate}'}}]}}}}"
    )
    return _policy(
        "MutatingAdmissionPolicy",
        GATE_POLICY,
        options,
        operation="CREATE",
        matchConditions=[
            {"name": "has-no-node", "expression": _HAS_NO_NODE},
            {"name": "is-not-of-a-daemon-set", "expression": f"!{_IS_OF_DAEMON_SET}"},
            {"name": "is-not-placed-by-peloton", "expression": f"!{_IS_PLACED_BY_PELOTON}"},
        ],
        variables=[
            {"name": "ofNamespace", "expression": in_labels.format("namespaceObject", options.pool)},
            {"name": "ofPod", "expression": in_labels.format("object", options.pool)},
            {"name": "pool", "expression": pool},
        ],
        reinvocationPolicy="IfNeeded",
        mutations=[{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
    )


def _creation_policy(options: Options) -> Json:
    names = ", ".join(f"'{name}'" for name in DAEMON_SET_CONTROLLERS)
    allowed = [
        _has_gate("object", options),
        f"({_IS_PLACED_BY_PELOTON} && {_HAS_NO_NODE})",
        f"({_IS_OF_DAEMON_SET} && request.userInfo.username in [{names}])",
        "'system:nodes' in request.userInfo.groups",
        IS_GRANTED,
    ]
    message = (
        "pods of this namespace are admitted by Peloton: a pod names no node and no DaemonSet that did not make it; "
        "see peloton's docs/kubernetes/gate.md"
    )
    validation = {"expression": " || ".join(allowed), "message": message, "reason": "Forbidden"}
    return _policy("ValidatingAdmissionPolicy", CREATION_POLICY, options, operation="CREATE", validations=[validation])


def _change_policy(options: Options) -> Json:
    gate_stays = f"!{_has_gate('oldObject', options)} || {_has_gate('object', options)} || {IS_GRANTED}"
    gate_message = "only Peloton removes the scheduling gate of its queue: the pod waits until its pool admits it"
    marks = [_is_kept("labels", key) for key in (options.pool, GANG_SIZE)]
    marks += [_is_kept("annotations", key) for key in (RUN, FITS_ON, ADMITTED_AT)]
    marks_message = f"{options.pool}, {GANG_SIZE} and Peloton's annotations of a pod are not changed after its creation"
    return _policy(
        "ValidatingAdmissionPolicy",
        CHANGE_POLICY,
        options,
        operation="UPDATE",
        validations=[
            {"expression": gate_stays, "message": gate_message, "reason": "Forbidden"},
            {
                "expression": f"({' && '.join(marks)}) || {IS_GRANTED}",
                "message": marks_message,
                "reason": "Forbidden",
            },
        ],
    )


def _has_gate(name: str, options: Options) -> str:
    return f"(has({name}.spec.schedulingGates) && {name}.spec.schedulingGates.exists(g, g.name == '{options.gate}'))"


def _is_kept(field: str, key: str) -> str:
    def value(name: str) -> str:
        where = f"{name}.metadata.{field}"
        return f"(has({where}) && '{key}' in {where} ? {where}['{key}'] : '')"

    return f"{value('object')} == {value('oldObject')}"


def _policy(kind: str, name: str, options: Options, operation: str, **spec: object) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*UNTOUCHED]}
    constraints = {"namespaceSelector": {"matchExpressions": [elsewhere]}, "resourceRules": [rule]}
    meta = {"name": name + options.suffix, "labels": _MANAGED_BY}
    body = {"failurePolicy": options.failure_policy, "matchConstraints": constraints, **spec}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": body}


# -- bindings ---------------------------------------------------------------------------------------------------------


def _bind_twice(kind: str, policy: str, options: Options) -> list[Json]:
    """Bind to all pods of namespaces with a pool, and to the pods of others that name a pool themselves."""
    others = {**_of_namespaces("DoesNotExist", options), **_of_pods("Exists", options)}
    return [
        _bind(kind, policy, "", _of_namespaces("Exists", options), options),
        _bind(kind, policy, "-labelled-pods", others, options),
    ]


def _of_namespaces(operator: str, options: Options) -> Json:
    return {"namespaceSelector": {"matchExpressions": [{"key": options.pool, "operator": operator}]}}


def _of_pods(operator: str, options: Options) -> Json:
    return {"objectSelector": {"matchExpressions": [{"key": options.pool, "operator": operator}]}}


def _bind(kind: str, policy: str, more: str, matched: Json, options: Options) -> Json:
    spec: Json = {"policyName": policy + options.suffix, "matchResources": matched}
    if kind == "ValidatingAdmissionPolicyBinding":
        spec["validationActions"] = ["Deny"]
    meta = {"name": f"{policy}{more}{options.suffix}", "labels": _MANAGED_BY}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def list_names(objects: Sequence[Json]) -> str:
    return ", ".join(f"{made['kind']} {made['metadata']['name']}" for made in objects)

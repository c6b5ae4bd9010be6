"""Admission policies of the gate: pure functions that return the objects of Kubernetes.

One policy adds the gate to new pods. Two others reject what would pass it: a pod without it, and the removal of the
gate or of a mark that Peloton relies on. The right to pass is RBAC's: the verb ``grant`` on ``admissions.peloton.io``,
which Peloton's host manager has, and administrators of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.external_specs import GANG_SIZE
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, FITS_ON
from services.hostmgr.kubernetes.gates.building import (
    API,
    IS_GRANTED,
    IS_PLACED_BY_PELOTON,
    Options,
    bind,
    bind_twice,
    is_kept,
    make_policy,
    of_objects,
    pool_variables,
)
from services.hostmgr.kubernetes.gates.hold_policies import (
    is_pod_of_held,
    make_hold_bindings,
    make_hold_policies,
)
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD, RUN

GATE_POLICY, CREATION_POLICY, CHANGE_POLICY = "peloton-gate", "peloton-gate-creation", "peloton-gate-change"
DAEMON_SET_CONTROLLERS = ("system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager")
_HAS_NO_NODE = "(!has(object.spec.nodeName) || object.spec.nodeName == '')"
_IS_OF_DAEMON_SET = (
    "(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists("
    "o, o.kind == 'DaemonSet' && o.apiVersion.startsWith('apps/') && has(o.controller) && o.controller))"
)
_PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def make_policies(options: Options) -> list[Json]:
    return [*make_hold_policies(options), _gate_policy(options), _creation_policy(options), _change_policy(options)]


def make_bindings(options: Options) -> list[Json]:
    """Return the bindings, without which a policy has no effect."""
    return [
        *bind_twice("MutatingAdmissionPolicyBinding", GATE_POLICY, options),
        *bind_twice("ValidatingAdmissionPolicyBinding", CREATION_POLICY, options),
        bind("ValidatingAdmissionPolicyBinding", CHANGE_POLICY, "", of_objects(options), options),
        *make_hold_bindings(options),
    ]


def path_of(made: Json) -> str:
    """Return the path of the object in the API."""
    kind: str = made["kind"]
    plural = f"{kind[:-1]}ies" if kind.endswith("Policy") else f"{kind}s"
    return f"/apis/{API}/{plural.lower()}/{made['metadata']['name']}"


# -- policies ---------------------------------------------------------------------------------------------------------


def _gate_policy(options: Options) -> Json:
    meta = f"labels: {{'{options.pool}': variables.pool}}"
    mark = f"annotations: {{'{HELD}': '{BY_SUSPEND}'}}"
    gated = (
        f"Object{{metadata: Object.metadata{{{meta}}}, "
        f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{options.gate}'}}]}}}}"
    )
    change = f"{is_pod_of_held(options.owners)} ? Object{{metadata: Object.metadata{{{meta}, {mark}}}}} : {gated}"
    return make_policy(
        "MutatingAdmissionPolicy",
        GATE_POLICY,
        options,
        [{**_PODS, "operations": ["CREATE"]}],
        matchConditions=[
            {"name": "has-no-node", "expression": _HAS_NO_NODE},
            {"name": "is-not-of-a-daemon-set", "expression": f"!{_IS_OF_DAEMON_SET}"},
            {"name": "is-not-placed-by-peloton", "expression": f"!{IS_PLACED_BY_PELOTON}"},
        ],
        variables=pool_variables(options),
        reinvocationPolicy="IfNeeded",
        mutations=[
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": change if options.owners else gated},
            },
            *([_selection(options.nodes)] if options.nodes else ()),
        ],
    )


def _selection(nodes: Sequence[tuple[str, str]]) -> Json:
    """Return the mutation that adds labels to the node selector, which an apply configuration may not change."""
    path = "/spec/nodeSelector"
    first = f"has(object.spec.nodeSelector) ? [] : [JSONPatch{{op: 'add', path: '{path}', value: {{}}}}]"
    keys = ((key.replace("/", "~1"), value) for key, value in nodes)
    added = ", ".join(f"JSONPatch{{op: 'add', path: '{path}/{key}', value: '{value}'}}" for key, value in keys)
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": f"({first}) + [{added}]"}}


def _creation_policy(options: Options) -> Json:
    names = ", ".join(f"'{name}'" for name in DAEMON_SET_CONTROLLERS)
    allowed = [
        _has_gate("object", options),
        f"({IS_PLACED_BY_PELOTON} && {_HAS_NO_NODE})",
        f"({_IS_OF_DAEMON_SET} && request.userInfo.username in [{names}])",
        "'system:nodes' in request.userInfo.groups",
        *([is_pod_of_held(options.owners)] if options.owners else ()),
        IS_GRANTED,
    ]
    message = (
        "pods of this namespace are admitted by Peloton: a pod names no node and no DaemonSet that did not make it; "
        "see peloton's docs/kubernetes/gate.md"
    )
    validation = {"expression": " || ".join(allowed), "message": message, "reason": "Forbidden"}
    return make_policy(
        "ValidatingAdmissionPolicy",
        CREATION_POLICY,
        options,
        [{**_PODS, "operations": ["CREATE"]}],
        validations=[validation],
    )


def _change_policy(options: Options) -> Json:
    gate_stays = f"!{_has_gate('oldObject', options)} || {_has_gate('object', options)} || {IS_GRANTED}"
    gate_message = "only Peloton removes the scheduling gate of its queue: the pod waits until its pool admits it"
    marks = [is_kept("metadata.labels", key) for key in (options.pool, GANG_SIZE)]
    marks += [is_kept("metadata.annotations", key) for key in (RUN, FITS_ON, ADMITTED_AT, HELD)]
    marks_message = f"{options.pool}, {GANG_SIZE} and Peloton's annotations of a pod are not changed after its creation"
    return make_policy(
        "ValidatingAdmissionPolicy",
        CHANGE_POLICY,
        options,
        [{**_PODS, "operations": ["UPDATE"]}],
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


def list_names(objects: Sequence[Json]) -> str:
    return ", ".join(f"{made['kind']} {made['metadata']['name']}" for made in objects)

"""Installation of the gate in a cluster: its policies are proved by dry runs before they are bound, and the gates of
all waiting pods are removed when they are gone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from itertools import product

import orjson

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import (
    STRATEGIC_PATCH,
    Answer,
    ApiServer,
    Json,
    Refused,
    Request,
    fault_of,
)
from services.hostmgr.kubernetes.external.gate import GATE, gates_of
from services.hostmgr.kubernetes.gates.building import API, FAIL, Options
from services.hostmgr.kubernetes.gates.hold_policies import HOLD, make_hold_bindings, make_hold_policies
from services.hostmgr.kubernetes.gates.policies import (
    list_names,
    make_bindings,
    make_policies,
    path_of,
)
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind
from services.hostmgr.kubernetes.suspend.uninstallation import resume_held

APPLY = "application/apply-patch+yaml"
TRIAL_TIMEOUT_S, TRIAL_PAUSE_S = 20.0, 0.25
"""Limit of a proof, and the pause between its attempts: a policy takes effect some time after it was bound."""
TAKES_EFFECT_S = 1.5
"""Seconds after which every apiserver certainly applies a change of a policy or binding."""
PODS_PER_PAGE = 500
UNGATE_ROUNDS_MAX = 1_000
"""Limit of lists of waiting pods: each round ungates all pods that it finds."""
WAITING = "/api/v1/pods?fieldSelector=status.phase%3DPending%2Cspec.nodeName%3D"
TRIAL, TRIAL_POOL = "-trial-", "trial"
INSTALLED = f"/apis/{API}/mutatingadmissionpolicies?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dpeloton"


class NotProved(Exception):
    """The policies do not have their effect in this cluster. They were not installed."""


def install(
    api: ApiServer,
    failure_policy: str = FAIL,
    say: Callable[[str], None] = lambda text: None,
    suspends_owners: bool = True,
    kinds: Sequence[OwnerKind] = KINDS,
    nodes: Sequence[tuple[str, str]] = (),
) -> None:
    """Prove the policies in a namespace of their own, and install or update them. Unless it ``suspends_owners``, which
    are those of these kinds, all pods are gated instead. ``nodes`` are labels of the nodes that pods may use. Raises
    NotProved, InvalidArgument for an apiserver without such policies, or for installed ones of further kinds, and
    OSError."""
    held = Options(failure_policy, owners=(*kinds,), nodes=(*nodes,))
    _check_kinds(api, held)
    options = _with_owners(held, suspends_owners)
    prove(api, options)
    say("the policies are proved by dry runs in a namespace of their own")
    for made in (*make_policies(options), *make_bindings(options)):
        _apply(api, made)
        say(f"applied {list_names([made])}")
    if not suspends_owners:
        _delete(api, [*reversed(make_hold_bindings(held)), *reversed(make_hold_policies(held))], say)
    time.sleep(TAKES_EFFECT_S)


def _check_kinds(api: ApiServer, options: Options) -> None:
    """Raise InvalidArgument if installed policies hold kinds that these options do not have: they would stay, or their
    owners would wait for ever."""
    known = {(kind.group, kind.version, kind.plural) for kind in options.owners}
    for name, rules in _list_holds(api):
        for rule in rules:
            for one in product(rule["apiGroups"], rule["apiVersions"], rule["resources"]):
                if one not in known:
                    group, version, plural = one
                    raise InvalidArgument(
                        f"the installed policy {name} holds {plural} of {group}/{version}, which is no known kind: "
                        "name the file of its kinds with --owner-kinds"
                    )


def _list_holds(api: ApiServer) -> Iterator[tuple[str, list[Json]]]:
    """Yield the names and rules of installed policies that hold owners."""
    try:
        for _, found in pages(api, INSTALLED, 0):
            for one in found:
                name = one["metadata"]["name"]
                if name.startswith(HOLD) and TRIAL not in name:
                    yield name, one["spec"]["matchConstraints"]["resourceRules"]
    except Refused as error:
        if error.answer.status != HTTPStatus.NOT_FOUND:  # an apiserver without such policies, which install names
            raise


def _with_owners(options: Options, suspends_owners: bool) -> Options:
    return options if suspends_owners else replace(options, owners=())


def prove(api: ApiServer, installed: Options) -> None:
    """Raise NotProved unless the policies do what they should in this cluster."""
    with _trial(api, installed) as (namespace, options):
        _await_gated(api, namespace, options)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "trial", "uid": "trial", "controller": True}
        daemon = _ask_pod(api, f"{pods}?dryRun=All", ownerReferences=[owner])
        if not daemon.is_ok or gates_of(daemon.json()):
            raise NotProved(f"a pod of a DaemonSet is not left alone: {fault_of(daemon) or 'it has the gate'}")
        real = _ask_pod(api, pods)
        if not real.is_ok:
            raise NotProved(f"a pod cannot be created: {real.message}")
        body = orjson.dumps({"spec": {"schedulingGates": [{"$patch": "delete", "name": options.gate}]}})
        if options.owners:
            _prove_hold(api, namespace)
        freed = api.ask(Request("PATCH", f"{pods}/trial?dryRun=All", body, STRATEGIC_PATCH))
        if not freed.is_ok or gates_of(freed.json()):
            raise NotProved(f"an administrator cannot remove the gate: {fault_of(freed) or 'it stays'}")


def _prove_hold(api: ApiServer, namespace: str) -> None:
    """Raise NotProved unless a Job is held suspended, and one of another controller is not."""
    owner = {"apiVersion": "example.org/v1", "kind": "Trial", "name": "trial", "uid": "trial", "controller": True}
    until_s = time.monotonic() + TRIAL_TIMEOUT_S
    while why := _why_not_held(api, namespace, [], is_held_expected=True):
        if time.monotonic() >= until_s:
            raise NotProved(f"a Job is not held suspended: {why}")
        time.sleep(TRIAL_PAUSE_S)
    if why := _why_not_held(api, namespace, [owner], is_held_expected=False):
        raise NotProved(f"a Job is not left to its controller: {why}")


def _why_not_held(api: ApiServer, namespace: str, owners: Sequence[Json], is_held_expected: bool) -> str:
    container = {"name": "trial", "image": "busybox:stable"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    body = {"metadata": {"name": "trial", "ownerReferences": [*owners]}, "spec": spec}
    made = api.ask(Request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All", orjson.dumps(body)))
    if not made.is_ok:
        return made.message
    is_held = bool(made.json()["spec"].get("suspend"))
    return "" if is_held is is_held_expected else f"its flag is {is_held}"


@contextmanager
def _trial(api: ApiServer, installed: Options) -> Iterator[tuple[str, Options]]:
    """Make a namespace with a pool, and policies that concern it alone."""
    options = replace(installed, suffix=f"{TRIAL}{secrets.token_hex(4)}")
    name = f"peloton{options.suffix}"
    made = [*make_policies(options), *make_bindings(options)]
    labels = {options.pool: TRIAL_POOL}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    try:
        created = api.ask(Request("POST", "/api/v1/namespaces", orjson.dumps(namespace)))
        if not created.is_ok:
            raise OSError(f"namespace {name} for the proof: {created.message}")
        for one in made:
            _apply(api, one)
        yield name, options
    finally:
        with suppress(OSError):
            api.ask_all([Request("DELETE", path_of(one)) for one in reversed(made)])
            api.ask(Request("DELETE", f"/api/v1/namespaces/{name}"))


def _await_gated(api: ApiServer, namespace: str, options: Options) -> None:
    until_s = time.monotonic() + TRIAL_TIMEOUT_S
    why = ""
    while time.monotonic() < until_s:
        answer = _ask_pod(api, f"/api/v1/namespaces/{namespace}/pods?dryRun=All")
        if answer.is_ok:
            pod = answer.json()
            pool = (pod["metadata"].get("labels") or {}).get(options.pool)
            if options.gate in gates_of(pod) and pool == TRIAL_POOL:
                if missing := {*options.nodes} - {*(pod["spec"].get("nodeSelector") or {}).items()}:
                    raise NotProved(f"a new pod has no node selector {missing}")
                return
            why = f"a new pod has the gates {sorted(gates_of(pod))} and the pool {pool!r}"
        else:
            why = answer.message
        time.sleep(TRIAL_PAUSE_S)
    raise NotProved(f"{why}, {TRIAL_TIMEOUT_S:g} s after the policies were bound; nothing was installed")


def _ask_pod(api: ApiServer, path: str, **meta: object) -> Answer:
    container = {"name": "trial", "image": "busybox:stable"}
    body = {"metadata": {"name": "trial", **meta}, "spec": {"containers": [container]}}
    return api.ask(Request("POST", path, orjson.dumps(body)))


def _apply(api: ApiServer, made: Json) -> None:
    answer = api.ask(
        Request(
            "PATCH",
            f"{path_of(made)}?fieldManager=peloton&force=true&fieldValidation=Strict",
            orjson.dumps(made),
            APPLY,
        )
    )
    if answer.status == HTTPStatus.NOT_FOUND:
        raise InvalidArgument(
            f"this apiserver has no {made['kind']} of {made['apiVersion']}: the gate needs Kubernetes 1.36 or later"
        )
    if not answer.is_ok:
        raise OSError(f"{list_names([made])}: {answer.message}")


def check(
    api: ApiServer, kinds: Sequence[OwnerKind] = KINDS, nodes: Sequence[tuple[str, str]] = ()
) -> tuple[list[str], int]:
    """Return what is missing or differs from this release, and the number of pods that wait with the gate. Raises
    InvalidArgument for installed policies of further kinds, and OSError."""
    faults = []
    held = Options(owners=(*kinds,), nodes=(*nodes,))
    _check_kinds(api, held)
    holds = any(api.ask(Request("GET", path_of(made))).is_ok for made in make_hold_policies(held))
    options = _with_owners(held, holds)
    for made in (*make_policies(options), *make_bindings(options)):
        answer = api.ask(Request("GET", path_of(made)))
        if answer.status == HTTPStatus.NOT_FOUND:
            faults.append(f"{list_names([made])} is missing")
        elif not answer.is_ok:
            raise OSError(answer.message)
        else:
            faults += _differences(made, answer.json())
    return faults, sum(len(page) for page in _waiting_pods(api))


def _differences(made: Json, found: Json) -> list[str]:
    name = list_names([made])
    wanted = {key: value for key, value in made["spec"].items() if key != "failurePolicy"}
    faults = [
        f"{name}: {key} is not that of this release"
        for key, value in wanted.items()
        if not _has(found["spec"], key, value)
    ]
    warnings = ((found.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings") or ()
    return faults + [f"{name}: {one.get('fieldRef')}: {one.get('warning')}" for one in warnings]


def _has(found: Json, key: str, wanted: object) -> bool:
    """Return whether the field has this value, apart from defaults that the apiserver adds."""
    return key in found and _covers(found[key], wanted)


def _covers(found: object, wanted: object) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _covers(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_covers, found, wanted))
    return found == wanted


def uninstall(
    api: ApiServer, say: Callable[[str], None] = lambda text: None, kinds: Sequence[OwnerKind] = KINDS
) -> int:
    """Remove the policies, and then the gates of all waiting pods, and resume all owners that wait; return the number
    of these. Raises InvalidArgument, before any change, for installed policies of further kinds, and OSError; it may be
    repeated."""
    options = Options(owners=(*kinds,))
    _check_kinds(api, options)
    _delete(api, [*make_bindings(options), *reversed(make_policies(options))], say)
    time.sleep(TAKES_EFFECT_S)
    total = resume_held(api, kinds)
    for _ in range(UNGATE_ROUNDS_MAX):
        count = sum(_ungate(api, page) for page in _waiting_pods(api))
        if not count:
            return total
        total += count
    raise OSError(f"pods with the gate are still created after {UNGATE_ROUNDS_MAX} rounds: another policy adds it")


def _delete(api: ApiServer, objects: Sequence[Json], say: Callable[[str], None]) -> None:
    for made in objects:
        answer = api.ask(Request("DELETE", path_of(made)))
        if answer.status == HTTPStatus.NOT_FOUND:
            continue
        if why := fault_of(answer):
            raise OSError(f"{list_names([made])}: {why}")
        say(f"deleted {list_names([made])}")


def _waiting_pods(api: ApiServer) -> Iterator[list[Json]]:
    for _, pods in pages(api, WAITING, PODS_PER_PAGE):
        yield [pod for pod in pods if GATE in gates_of(pod)]


def _ungate(api: ApiServer, pods: Sequence[Json]) -> int:
    requests = []
    for pod in pods:
        meta = pod["metadata"]
        change = {"metadata": {"uid": meta["uid"]}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        requests.append(Request("PATCH", path, orjson.dumps(change), STRATEGIC_PATCH))
    for answer in api.ask_all(requests):
        if why := fault_of(answer, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise OSError(why)
    return len(pods)

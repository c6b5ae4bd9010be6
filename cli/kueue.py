"""Objects of Kueue as objects of Peloton's pools: a pure translation, with a note for what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

Json = dict[str, Any]
GROUP = "kueue.x-k8s.io/"
MIB = 2**20
KINDS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk", "nvidia.com/gpu": "gpu"}
"""Kinds of Peloton by resources of Kubernetes; other ones are extended resources and keep their names."""
_BYTES = ("memory", "disk")
_FACTORS = {
    **{"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(1000), "M": Decimal(10**6), "G": Decimal(10**9)},
    **{"T": Decimal(10**12), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40)},
}
LEVELS_MAX = 32
"""Limit of the levels of cohorts."""


class NotKueue(ValueError):
    """Raised for objects that cannot be translated; the text names the object and the field."""


@dataclass
class Amounts:
    reservation: Decimal = Decimal(0)
    limit: Decimal = Decimal(0)
    is_unlimited: bool = False  # it may borrow all that there is
    is_static: bool = False  # nothing of it is lent


@dataclass
class Pool:
    name: str  # of the object
    above: str = ""  # the cohort
    amounts: dict[str, Amounts] = field(default_factory=dict)
    share: Decimal = Decimal(1)
    namespaces: list[str] = field(default_factory=list)


@dataclass
class Translation:
    objects: list[Json]
    notes: list[str]


def translate(items: Iterable[Mapping[str, Any]]) -> Translation:
    """Translate cohorts, cluster queues and local queues; other kinds are left out with a note. Raises NotKueue."""
    by_kind: dict[str, list[Json]] = {"Cohort": [], "ClusterQueue": [], "LocalQueue": []}
    notes: list[str] = []
    for item in items:
        kind = str(item.get("kind", ""))
        if str(item.get("apiVersion", "")).startswith(GROUP) and kind in by_kind:
            by_kind[kind].append(dict(item))
        else:
            what = " ".join(filter(None, (kind, _name(item)))) or "an object without kind and name"
            notes.append(f"{what}: it is no Cohort, ClusterQueue or LocalQueue, and is left out")
    cohorts = {_name(one): _cohort(one, notes) for one in by_kind["Cohort"]}
    queues = {_name(one): _cluster_queue(one, notes) for one in by_kind["ClusterQueue"]}
    for above in [*(one.above for one in queues.values()), *(one.above for one in cohorts.values())]:
        if above:
            cohorts.setdefault(above, Pool(above))
    _place_namespaces(by_kind["LocalQueue"], queues, notes)
    paths = {name: _path(name, cohorts) for name in cohorts}
    both = sorted(queues.keys() & cohorts.keys())
    notes += [f"ClusterQueue {one}: its pool is the object {one}-queue: a Cohort has the same name" for one in both]
    for name in sorted(cohorts, key=lambda one: -paths[one].count("/")):  # a cohort has what those below it have
        _gather(name, cohorts, queues)
    found: list[Json] = []
    for name in sorted(cohorts, key=lambda one: (paths[one].count("/"), paths[one])):
        _bound(cohorts[name], cohorts.get(cohorts[name].above))
        found.append(_object(name, paths[name], cohorts[name]))
    for name, queue in sorted(queues.items()):
        own = f"{name}-queue" if name in cohorts else name
        _bound(queue, cohorts.get(queue.above))
        found.append(_object(own, f"{paths.get(queue.above, '')}/{own}", queue))
    return Translation(found, notes)


def _name(item: Mapping[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("name", ""))


def _cohort(item: Json, notes: list[str]) -> Pool:
    spec = item.get("spec") or {}
    pool = Pool(_name(item), str(spec.get("parentName") or spec.get("parent") or ""))
    pool.amounts = _amounts(item, notes)
    pool.share = _share(spec)
    return pool


def _cluster_queue(item: Json, notes: list[str]) -> Pool:
    spec, name = item.get("spec") or {}, _name(item)
    pool = Pool(name, str(spec.get("cohortName") or spec.get("cohort") or ""))
    pool.amounts = _amounts(item, notes)
    pool.share = _share(spec)
    if spec.get("queueingStrategy") == "StrictFIFO":
        notes.append(
            f"ClusterQueue {name}: StrictFIFO: in Peloton a gang that waits for room is passed by others for a time"
        )
    if spec.get("admissionChecks") or spec.get("admissionChecksStrategy"):
        notes.append(f"ClusterQueue {name}: admission checks have no counterpart and are left out")
    return pool


def _share(spec: Json) -> Decimal:
    return _number(str((spec.get("fairSharing") or {}).get("weight", "1")), "fairSharing.weight")


def _amounts(item: Json, notes: list[str]) -> dict[str, Amounts]:
    """Return the amounts of each kind: the sum over flavors, which have no counterpart."""
    found: dict[str, Amounts] = {}
    where = f"{item['kind']} {_name(item)}"
    for group in (item.get("spec") or {}).get("resourceGroups") or ():
        flavors = group.get("flavors") or []
        if len(flavors) > 1:
            names = ", ".join(str(one.get("name")) for one in flavors)
            notes.append(
                f"{where}: quotas of the flavors {names} are added: give the pool hosts by host pools or labels"
            )
        for one in (resource for flavor in flavors for resource in flavor.get("resources") or ()):
            kind = KINDS.get(str(one["name"]), str(one["name"]))
            if kind == "pods":
                notes.append(f"{where}: a quota of pods has no counterpart and is left out")
                continue
            amounts = found.setdefault(kind, Amounts())
            nominal = _amount(one.get("nominalQuota", 0), kind, where)
            amounts.reservation += nominal
            amounts.limit += nominal
            if one.get("borrowingLimit") is None:
                amounts.is_unlimited = True
            else:
                amounts.limit += _amount(one["borrowingLimit"], kind, where)
            if (lending := one.get("lendingLimit")) is not None:
                lent = _amount(lending, kind, where)
                amounts.is_static |= lent == 0
                if 0 < lent < nominal:
                    notes.append(
                        f"{where}: all of its {kind} is lent, not {lending} alone: Peloton lends all or nothing"
                    )
    return found


def _place_namespaces(local: list[Json], queues: Mapping[str, Pool], notes: list[str]) -> None:
    """Give pools the namespaces whose local queues all lead to them."""
    leads: dict[str, dict[str, str]] = {}
    for item in local:
        namespace = str(item["metadata"].get("namespace", "default"))
        leads.setdefault(namespace, {})[_name(item)] = str((item.get("spec") or {}).get("clusterQueue", ""))
    for namespace, targets in sorted(leads.items()):
        names = sorted({*targets.values()})
        if missing := [name for name in names if name not in queues]:
            notes.append(f"LocalQueues of namespace {namespace}: there is no ClusterQueue {', '.join(missing)}")
        elif len(names) == 1:
            queues[names[0]].namespaces.append(namespace)
        else:
            for queue, target in sorted(targets.items()):
                if queue != target:
                    notes.append(
                        f"LocalQueue {namespace}/{queue}: set the label peloton.io/pool of its pods to the pool of "
                        f"{target}: the namespace has queues of several pools"
                    )


def _path(name: str, cohorts: Mapping[str, Pool]) -> str:
    names, at = [name], cohorts[name].above
    while at:
        if len(names) > LEVELS_MAX or at in names:
            raise NotKueue(
                f"Cohort {name}: its parents {' > '.join(names)} form a circle, or more than {LEVELS_MAX} levels"
            )
        names.append(at)
        at = cohorts[at].above if at in cohorts else ""
    return "/" + "/".join(reversed(names))


def _gather(name: str, cohorts: dict[str, Pool], queues: Mapping[str, Pool]) -> None:
    """Add the nominal quotas of those below a cohort to its own."""
    below = [one for one in (*queues.values(), *cohorts.values()) if one.above == name]
    for kind in sorted({kind for one in below for kind in one.amounts}):
        own = cohorts[name].amounts.setdefault(kind, Amounts(is_unlimited=True))
        added = sum((one.amounts[kind].reservation for one in below if kind in one.amounts), Decimal(0))
        own.reservation += added
        own.limit += added


def _bound(pool: Pool, above: Pool | None) -> None:
    """Set the limits of a pool whose cohort has its own: at the top it can borrow from none."""
    for kind, amounts in pool.amounts.items():
        most = above.amounts[kind].limit if above is not None else amounts.reservation
        amounts.limit = most if amounts.is_unlimited else min(amounts.limit, most)


def _object(name: str, path: str, pool: Pool) -> Json:
    resources = []
    for kind, amounts in sorted(pool.amounts.items()):
        each: Json = {"kind": kind, "reservation": _plain(amounts.reservation), "limit": _plain(amounts.limit)}
        if pool.share != 1:
            each["share"] = _plain(pool.share)
        if amounts.is_static:
            each["type"] = "STATIC"
        resources.append(each)
    spec: Json = {"path": path, "resources": resources}
    if pool.namespaces:
        spec["namespaces"] = pool.namespaces
    return {"apiVersion": "peloton.io/v1", "kind": "ResourcePool", "metadata": {"name": name}, "spec": spec}


def _amount(value: object, kind: str, where: str) -> Decimal:
    found = _number(str(value), f"{where}: {kind}")
    return (found / MIB).quantize(Decimal("0.001")) if kind in _BYTES else found


def _number(text: str, where: str) -> Decimal:
    """Parse a quantity of Kubernetes. Raises NotKueue."""
    digits = text.rstrip("mkMGTi")
    try:
        return Decimal(digits) * _FACTORS[text[len(digits) :]]
    except (InvalidOperation, KeyError):
        raise NotKueue(f"{where}: {text!r} is no quantity") from None


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def documents(tree: object) -> Iterator[Json]:
    """Yield objects of a document: itself, or the items of a list."""
    if isinstance(tree, dict) and isinstance(tree.get("items"), list):
        yield from (one for one in tree["items"] if isinstance(one, dict))
    elif isinstance(tree, dict):
        yield tree

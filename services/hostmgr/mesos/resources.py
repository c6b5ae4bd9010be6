"""Mesos resources of offers and tasks. Scalars are in thousandths, as Mesos rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from peloton.model.resources import (
    EXTENDED_KINDS_MAX,
    LICENSE_PREFIX,
    Extended,
    Resources,
    compute_needed,
    to_extended,
)
from services.hostmgr.driver import Ports

Json = dict[str, Any]
Scalar = tuple[str, bool, int, Json]
"""Kind, whether it is revocable, thousandths, entry."""
_KINDS = ("cpus", "mem", "disk", "gpus")
PREFIX = "mesos/"
"""Prefix of the extended resource that a scalar without one is."""
OFFERED_KEPT_MAX = 10_000
"""Limit of cached contents of offers: equal hosts with equal free resources share one."""
SHAPES_MAX = 10_000
"""Limit of cached totals."""
ANY_ROLE = "*"


def roles_above(role: str) -> frozenset[str]:
    """Return the role and its ancestors: Mesos offers a role the resources that agents reserve for any of them."""
    parts = role.split("/")
    return frozenset("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def is_for_pods(entry: Json, roles: Collection[str]) -> bool:
    """Return whether pods of a framework with these roles may use the entry: it is unreserved, or reserved for one of
    the roles by the agent's flags. Dynamic reservations are kept for their volumes, and so are whole disks with a
    ``source`` (MOUNT, BLOCK, RAW, PATH): sandboxes of pods are on the agent's own disk, which has none.

    Mesos writes reservations in two forms. The refined one is a stack, ``reservations``. In the older one, which offers
    use, a static reservation is a ``role`` alone, and a dynamic one has ``reservation`` too, which may be empty.
    """
    if entry.get("disk"):
        return False
    if stack := entry.get("reservations"):
        return len(stack) == 1 and stack[0]["type"] == "STATIC" and stack[0]["role"] in roles
    role = entry.get("role", ANY_ROLE)
    return "reservation" not in entry and (role == ANY_ROLE or role in roles)


@lru_cache(maxsize=SHAPES_MAX)
def _resources(cpu_milli: int, memory_mib: int, disk_mib: int, gpu_milli: int, extended: Extended) -> Resources:
    """Return one shared value for hosts of one shape: at 50,000 hosts this saves 30 MiB."""
    return Resources(cpu_milli, memory_mib, disk_mib, gpu_milli, extended)


@lru_cache(maxsize=SHAPES_MAX)
def _compute_needs(wanted: Resources) -> tuple[tuple[str, int], ...]:
    """Return the thousandths by kind that a pod takes of its host."""
    wanted = compute_needed(wanted)
    needs = {
        "cpus": wanted.cpu_milli,
        "mem": wanted.memory_mib * 1000,
        "disk": wanted.disk_mib * 1000,
        "gpus": wanted.gpu_milli,
        **{name.removeprefix(PREFIX): amount * 1000 for name, amount in wanted.extended},
    }
    return tuple((name, amount) for name, amount in needs.items() if amount > 0)


@dataclass(slots=True)
class OfferedResources:
    """The mutable resources of one host that are available to pods, from any number of offers.

    ``roles`` are the framework's role and its ancestors.
    """

    roles: Collection[str] = ()
    scalars: list[Scalar] = field(default_factory=list)
    port_entries: list[Json] = field(default_factory=list)
    volumes: dict[str, Json] = field(default_factory=dict)  # Peloton's volumes, by id

    def add(self, entries: Iterable[Json]) -> None:
        for entry in entries:
            name = entry["name"]
            if not is_for_pods(entry, self.roles):
                continue
            if entry["type"] == "SCALAR" and not name.startswith((LICENSE_PREFIX, PREFIX)):
                amount = round(entry["scalar"]["value"] * 1000)
                self.scalars.append((name, "revocable" in entry, amount, entry))
            elif name == "ports" and entry.get("ranges", {}).get("range"):
                self.port_entries.append(entry)

    def total(self, revocable: bool) -> Resources:
        sums = dict.fromkeys(_KINDS, 0)
        for name, is_revocable, amount, _ in self.scalars:
            if is_revocable == revocable:
                sums[name] = sums.get(name, 0) + amount
        cpu, memory, disk, gpu = (sums.pop(name) for name in _KINDS)
        others = {name if "/" in name else f"{PREFIX}{name}": amount // 1000 for name, amount in sums.items()}
        extended = to_extended(others)[:EXTENDED_KINDS_MAX]
        return _resources(cpu, memory // 1000, disk // 1000, gpu, () if revocable else extended)

    def ports(self) -> Ports:
        ranges = (r for entry in self.port_entries for r in entry["ranges"]["range"])
        return tuple(sorted((int(r["begin"]), int(r["end"])) for r in ranges))

    def take(self, wanted: Resources, revocable: bool, ports: Collection[int]) -> list[Json] | None:
        """Return entries that make up ``wanted`` (revocable applies to cpu only) and the ports; None when some are
        lacking."""
        needs = dict(_compute_needs(wanted))
        taken: list[Json] = []
        left: list[tuple[int, Scalar]] = []
        for position, (name, is_revocable, amount, entry) in enumerate(self.scalars):
            part = min(needs.get(name, 0), amount)
            if part > 0 and is_revocable == (revocable and name == "cpus"):
                taken.append({**entry, "scalar": {"value": part / 1000}})
                needs[name] -= part
                left.append((position, (name, is_revocable, amount - part, entry)))
        if any(needs.values()):
            return None
        if ports:
            port_parts = self._take_ports(sorted(ports))
            if port_parts is None:
                return None
            taken += port_parts
        for position, scalar in left:
            self.scalars[position] = scalar
        return taken

    def take_disk(self, size_mib: int) -> Json | None:
        """Return an entry of this size, cut from one that is at least as large."""
        for position, (name, is_revocable, amount, entry) in enumerate(self.scalars):
            if name == "disk" and amount >= size_mib * 1000:
                self.scalars[position] = (name, is_revocable, amount - size_mib * 1000, entry)
                return {**entry, "scalar": {"value": float(size_mib)}}
        return None

    def _take_ports(self, ports: list[int]) -> list[Json] | None:
        """Return the entries of the ports, which are checked but not removed: the placement has assigned each to one
        pod."""
        parts: list[Json] = []
        for entry in self.port_entries:
            mine = [p for p in ports if any(r["begin"] <= p <= r["end"] for r in entry["ranges"]["range"])]
            if mine:
                ports = [p for p in ports if p not in mine]
                parts.append({**entry, "ranges": {"range": [{"begin": p, "end": p} for p in mine]}})
        return None if ports else parts


@dataclass(frozen=True, slots=True)
class Offered:
    """The resources of one offer, counted once."""

    scalars: tuple[Scalar, ...]
    port_entries: tuple[Json, ...]
    free: Resources
    revocable: Resources
    ports: Ports


class OfferedReader:
    """Reads offers, and keeps equal contents once: most of 50,000 hosts offer the same."""

    def __init__(self, role: str = ANY_ROLE) -> None:
        self._roles = roles_above(role)
        self._known: dict[bytes, Offered] = {}

    def read(self, entries: list[Json]) -> Offered:
        key = orjson.dumps(entries)
        found = self._known.get(key)
        if found is None:
            pot = OfferedResources(self._roles)
            pot.add(entries)
            free, revocable = pot.total(revocable=False), pot.total(revocable=True)
            found = Offered(tuple(pot.scalars), tuple(pot.port_entries), free, revocable, pot.ports())
            if len(self._known) >= OFFERED_KEPT_MAX:
                self._known.clear()
            self._known[key] = found
        return found

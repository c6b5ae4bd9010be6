"""Mesos resources as values: a dict from an interned Kind to thousandths (scalars) or ranges, with exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
# An int is a scalar in thousandths, a tuple of pairs is a list of inclusive ranges.
Value: TypeAlias = "int | Ranges"

THOUSAND = 1000


class Kind:
    """Properties of a resource apart from its amount; `kind_of` keeps one object per distinct kind."""

    __slots__ = ("disk", "name", "plain", "reservations", "revocable", "role", "type", "whole")

    def __init__(self, name: str, type_: str, reservations: bytes, disk: bytes, revocable: bool) -> None:
        self.name = name
        self.type = type_
        # Each reservation: {"type": STATIC|DYNAMIC, "role": ..., "principal"?, "labels"?}; the last one counts.
        self.reservations: tuple[Json, ...] = tuple(orjson.loads(reservations)) if reservations else ()
        self.disk: Json | None = orjson.loads(disk) if disk else None
        self.revocable = revocable
        self.plain = not (reservations or disk or revocable)
        # Disk that tasks and volumes take as a whole or not at all.
        self.whole = (self.disk or {}).get("source", {}).get("type") == "MOUNT"
        self.role: str | None = self.reservations[-1]["role"] if self.reservations else None

    def __repr__(self) -> str:
        return f"Kind({label(self)})"


Resources: TypeAlias = dict[Kind, Value]
Amounts: TypeAlias = tuple[tuple[Kind, Value], ...]
AMOUNTS_KEPT_MAX = 10_000
"""Number of different amounts whose JSON is cached: most agents have, hold and offer equal ones."""

_KINDS: dict[tuple[str, str, bytes, bytes, bool], Kind] = {}


def kind_of(
    name: str,
    type_: str = "SCALAR",
    reservations: Iterable[Json] = (),
    disk: Json | None = None,
    revocable: bool = False,
) -> Kind:
    stack = list(reservations)
    key = (
        name,
        type_,
        orjson.dumps(stack, option=orjson.OPT_SORT_KEYS) if stack else b"",
        orjson.dumps(disk, option=orjson.OPT_SORT_KEYS) if disk else b"",
        revocable,
    )
    kind = _KINDS.get(key)
    if kind is None:
        kind = _KINDS[key] = Kind(*key)
    return kind


CPUS = kind_of("cpus")
MEM = kind_of("mem")
DISK = kind_of("disk")
GPUS = kind_of("gpus")
PORTS = kind_of("ports", "RANGES")
REVOCABLE_CPUS = kind_of("cpus", revocable=True)
_PLAIN = {("cpus", "SCALAR"): CPUS, ("mem", "SCALAR"): MEM, ("disk", "SCALAR"): DISK, ("ports", "RANGES"): PORTS}


def parse_one(resource: Json) -> tuple[Kind, Value, str | None]:
    """Parse one protobuf-JSON Resource as (kind, amount, allocation role)."""
    type_, name, role = resource["type"], resource["name"], resource.get("role", "*")
    if type_ == "SCALAR":
        value: Value = round(resource.get("scalar", {}).get("value", 0) * THOUSAND)
    elif type_ == "RANGES":
        value = merge((item["begin"], item["end"]) for item in resource.get("ranges", {}).get("range", ()))
    else:
        value = ()
    stack = resource.get("reservations")
    if stack is None:
        stack = ()
        if role != "*":
            legacy = resource.get("reservation")
            if legacy is None:
                stack = ({"type": "STATIC", "role": role},)
            else:
                stack = ({**legacy, "type": "DYNAMIC", "role": role},)
    disk = resource.get("disk")
    revocable = "revocable" in resource
    kind = None if stack or disk or revocable else _PLAIN.get((name, type_))
    if kind is None:
        kind = kind_of(name, type_, stack, disk, revocable)
    return kind, value, resource.get("allocation_info", {}).get("role")


def parse(resources: Iterable[Json]) -> Resources:
    total: Resources = {}
    for resource in resources:
        kind, value, _ = parse_one(resource)
        add_to(total, {kind: value})
    return total


def add_to(left: Resources, right: Resources) -> None:
    for kind, value in right.items():
        if not value:
            continue
        before = left.get(kind)
        if before is None:
            left[kind] = value
        elif isinstance(value, int):
            left[kind] = before + value  # type: ignore[operator]
        else:
            left[kind] = merge((*before, *value))  # type: ignore[misc]


def take_from(left: Resources, right: Resources) -> None:
    """Subtract in place; the caller has checked `contains`, so nothing goes below zero."""
    for kind, value in right.items():
        before = left.get(kind)
        if before is None:
            continue
        if isinstance(value, int):
            rest: Value = before - value  # type: ignore[operator]
            assert rest >= 0, f"{label(kind)}: {before} - {value}"  # type: ignore[operator]
        else:
            rest = cut(before, value)  # type: ignore[arg-type]
        if rest:
            left[kind] = rest
        else:
            del left[kind]


def add(left: Resources, right: Resources) -> Resources:
    result = dict(left)
    add_to(result, right)
    return result


def sum_of(parts: Iterable[Resources]) -> Resources:
    result: Resources = {}
    for part in parts:
        add_to(result, part)
    return result


def scalar_of(resources: Resources, kind: Kind) -> int:
    """Return the thousandths of a scalar kind."""
    value = resources.get(kind, 0)
    assert isinstance(value, int)
    return value


def subtract(left: Resources, right: Resources) -> Resources:
    """Return `left` without `right`."""
    result = dict(left)
    take_from(result, right)
    return result


def contains(outer: Resources, inner: Resources) -> bool:
    for kind, value in inner.items():
        if not value:
            continue
        have = outer.get(kind)
        if have is None:
            return False
        if isinstance(value, int):
            if have < value or (kind.whole and have != value):  # type: ignore[operator]
                return False
        elif cut(value, have):  # type: ignore[arg-type]
            return False
    return True


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    result: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if result and begin <= result[-1][1] + 1:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        else:
            result.append((begin, end))
    return tuple(result)


def cut(ranges: Ranges, holes: Ranges) -> Ranges:
    """Return the parts of `ranges` outside `holes`."""
    result = list(ranges)
    for low, high in holes:
        rest = []
        for begin, end in result:
            if high < begin or low > end:
                rest.append((begin, end))
                continue
            if begin < low:
                rest.append((begin, low - 1))
            if end > high:
                rest.append((high + 1, end))
        result = rest
    return tuple(result)


def number(thousandths: int) -> str:
    """Format like Mesos: 4000 -> 4, 100 -> 0.1."""
    whole, rest = divmod(abs(thousandths), THOUSAND)
    sign = "-" if thousandths < 0 else ""
    return f"{sign}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")


def amount(value: Value) -> str:
    if isinstance(value, int):
        return number(value)
    return "[" + ", ".join(f"{begin}-{end}" for begin, end in value) + "]"


def label(kind: Kind, role: str | None = None) -> str:
    text = kind.name
    if role is not None:
        text += f"(allocated: {role})"
    if kind.reservations:
        text += "(reservations: [" + ",".join(_reservation(item) for item in kind.reservations) + "])"
    if kind.disk is not None:
        text += "[" + _disk(kind.disk) + "]"
    if kind.revocable:
        text += "{REV}"
    return text


def _reservation(item: Json) -> str:
    parts = [item["type"], item["role"]]
    if "principal" in item:
        parts.append(item["principal"])
    if "labels" in item:
        pairs = ((entry["key"], entry.get("value", "")) for entry in item["labels"].get("labels", ()))
        parts.append("{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}")
    return "(" + ",".join(parts) + ")"


def _disk(disk: Json) -> str:
    text = ""
    if "persistence" in disk:
        text = disk["persistence"].get("id", "")
    if "volume" in disk:
        volume = disk["volume"]
        text += ":" + (volume["host_path"] + ":" if "host_path" in volume else "") + volume.get("container_path", "")
        if volume.get("mode") == "RO":
            text += ":ro"
    return text


def text(resources: Resources, role: str | None = None) -> str:
    return "; ".join(f"{label(kind, role)}:{amount(value)}" for kind, value in resources.items()) or "{}"


def to_json(resources: Resources, role: str | None = None, refined: bool = False, both: bool = False) -> list[Json]:
    """Convert to protobuf-JSON; `role` sets allocation_info, `both` is the operator API's double format."""
    result = []
    for kind, value in resources.items():
        item: Json = {"name": kind.name, "type": kind.type}
        if isinstance(value, int):
            item["scalar"] = {"value": value / THOUSAND}
        else:
            item["ranges"] = {"range": [{"begin": begin, "end": end} for begin, end in value]}
        if not kind.reservations:
            if not refined:
                item["role"] = "*"
        else:
            if refined or both:
                item["reservations"] = [dict(entry) for entry in kind.reservations]
            if not refined:
                last = kind.reservations[-1]
                item["role"] = last["role"]
                if last["type"] == "DYNAMIC":
                    item["reservation"] = {key: last[key] for key in ("principal", "labels") if key in last}
        if kind.disk is not None:
            item["disk"] = kind.disk
        if kind.revocable:
            item["revocable"] = {}
        if role is not None:
            item["allocation_info"] = {"role": role}
        result.append(item)
    return result


def in_listing_order(resources: Resources) -> Resources:
    """Sort in the order of the master's own lists: unreserved, with ports last, then reserved."""
    order = sorted(resources, key=lambda kind: 2 if kind.reservations else 1 if kind is PORTS else 0)
    return {kind: resources[kind] for kind in order}


def scalars(resources: Resources) -> dict[str, int]:
    """Return thousandths per scalar name, including revocable ones."""
    result: dict[str, int] = {}
    for kind, value in resources.items():
        if isinstance(value, int):
            result[kind.name] = result.get(kind.name, 0) + value
    return result

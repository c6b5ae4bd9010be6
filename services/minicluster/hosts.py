"""The hosts a minicluster emulates: what each agent reports, the defaults, and the YAML file that overrides them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from services.minicluster.identifiers import role_fault

DEFAULT_PORTS = range(31000, 32001)
"""Dealt among the hosts that name none: their tasks are processes of one machine, and no two may get the same port."""
MAX_HOSTS = 200_000
PORT_MAX = 65535

_NUMBERS = ("cpus", "mem", "disk", "gpus", "revocable_cpus")
_FIELDS = ("name", *_NUMBERS, "ports", "attributes", "role", "mounts")
_NO_ATTRIBUTES: Mapping[str, str | float] = MappingProxyType({})


class HostFileError(ValueError):
    """A hosts file that cannot be used; the text names the file, the host, the rule and the numbers."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host: `mem` and `disk` in MB, `ports` as inclusive ranges, attributes as text or scalar."""

    name: str
    cpus: float = 4.0
    mem: float = 2048.0
    disk: float = 20000.0
    gpus: int = 0
    ports: tuple[tuple[int, int], ...] = ((DEFAULT_PORTS.start, DEFAULT_PORTS.stop - 1),)
    attributes: Mapping[str, str | float] = field(default_factory=lambda: _NO_ATTRIBUTES, hash=False)
    # None: as much as the slack that is measured.
    revocable_cpus: float | None = None
    # All of it is reserved for this role, as by an agent's --default_role; empty: for nobody.
    role: str = ""
    # MOUNT disks beside `disk`, in MB: each is taken whole or not at all.
    mounts: tuple[float, ...] = ()
    # The class of a simulated host; empty when there are none.
    group: str = ""


def default_hosts(
    prefix: str = "", share: tuple[int, int] = (1, 1), among: range = DEFAULT_PORTS
) -> tuple[HostSpec, ...]:
    """Three of them. ``share``: which, of how many clusters on this machine, among which
    its ports are dealt."""
    which, of = share
    ports = dealt_ports(3 * of, among=among)[3 * (which - 1) : 3 * which]
    return tuple(HostSpec(name=f"{prefix}agent{index}", ports=ports[index]) for index in range(3))


def dealt_ports(
    count: int, taken: Iterable[tuple[int, int]] = (), among: range = DEFAULT_PORTS
) -> list[tuple[tuple[int, int], ...]]:
    """The ports ``among`` these and not ``taken``, as equal shares of neighbours for so many hosts; more hosts than
    ports leave some without any."""
    named = {port for begin, end in taken for port in range(begin, end + 1)}
    free = [port for port in among if port not in named]
    share = len(free) // max(count, 1) or 1
    return [_ranges(free[index * share : (index + 1) * share]) for index in range(count)]


def _ranges(ports: list[int]) -> tuple[tuple[int, int], ...]:
    """Of rising ports."""
    starts = [port for before, port in pairwise([0, *ports]) if port != before + 1]
    ends = [port for port, after in pairwise([*ports, 0]) if after != port + 1]
    return tuple(zip(starts, ends, strict=True))


def simulated_hosts(count: int, prefix: str = "") -> tuple[HostSpec, ...]:
    """`count` equal hosts sim-00000, sim-00001, ... for the simulate mode."""
    if not 0 < count <= MAX_HOSTS:
        raise ValueError(f"the number of simulated hosts must be between 1 and {MAX_HOSTS}, got {count}")
    return tuple(HostSpec(name=f"{prefix}sim-{index:05d}") for index in range(count))


def load_hosts(path: str | Path, among: range = DEFAULT_PORTS) -> tuple[HostSpec, ...]:
    """Read a YAML list of hosts, such as `[{name: a, cpus: 8, ports: [31000-31999]}]`."""
    try:
        rows = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HostFileError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise HostFileError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if isinstance(rows, dict) and set(rows) == {"hosts"}:
        rows = rows["hosts"]
    if not isinstance(rows, list) or not rows:
        raise HostFileError(f"{path}: expected a list of at least one host, got {_kind(rows)}")
    if len(rows) > MAX_HOSTS:
        raise HostFileError(f"{path}: {len(rows)} hosts are more than the allowed {MAX_HOSTS}")
    hosts = [_host(path, index, row) for index, row in enumerate(rows)]
    seen: dict[str, int] = {}
    for index, host in enumerate(hosts):
        if host.name in seen:
            raise HostFileError(f"{path}: host {host.name!r}: name is used by entries {seen[host.name]} and {index}")
        seen[host.name] = index
    without = [index for index, row in enumerate(rows) if "ports" not in row]
    taken = [ports for index, host in enumerate(hosts) if index not in without for ports in host.ports]
    for index, ports in zip(without, dealt_ports(len(without), taken, among), strict=True):
        hosts[index] = replace(hosts[index], ports=ports)
    return tuple(hosts)


def _host(path: str | Path, index: int, row: object) -> HostSpec:
    if not isinstance(row, dict):
        raise HostFileError(f"{path}: entry {index}: expected a mapping, got {_kind(row)}")
    name = row.get("name")
    if not isinstance(name, str) or not name or "/" in name or name != name.strip():
        raise HostFileError(f"{path}: entry {index}: name must be a non-empty text without '/', got {name!r}")
    where = f"{path}: host {name!r}"
    unknown = sorted(str(key) for key in row if key not in _FIELDS)
    if unknown:
        raise HostFileError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(_FIELDS)}")
    values: dict[str, Any] = {"name": name}
    for key in _NUMBERS:
        if key not in row:
            continue
        value = row[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
            raise HostFileError(f"{where}: {key} must be a number from 0, got {value!r}")
        if key == "gpus" and value != int(value):
            raise HostFileError(f"{where}: gpus must be a whole number, got {value!r}")
        values[key] = int(value) if key == "gpus" else float(value)
    if "ports" in row:
        values["ports"] = _ports(where, row["ports"])
    if "attributes" in row:
        values["attributes"] = _attributes(where, row["attributes"])
    if "role" in row:
        values["role"] = _role(where, row["role"])
    if "mounts" in row:
        values["mounts"] = _mounts(where, row["mounts"])
    return HostSpec(**values)


def _role(where: str, value: object) -> str:
    fault = role_fault(value) if isinstance(value, str) else f"expected a text, got {value!r}"
    if fault is not None:
        raise HostFileError(f"{where}: role: {fault}")
    return "" if value == "*" else str(value)


def _mounts(where: str, value: object) -> tuple[float, ...]:
    sizes: list[Any] = value if isinstance(value, list) else [None]
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < 1e12:
            raise HostFileError(f"{where}: mounts must be a list of sizes in MB above 0, got {value!r}")
    return tuple(float(size) for size in sizes)


def _ports(where: str, value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list):
        raise HostFileError(f"{where}: ports must be a list of ranges such as 31000-32000, got {value!r}")
    ranges = []
    for item in value:
        begin, _, end = str(item).partition("-")
        if not begin.strip().isdigit() or (end and not end.strip().isdigit()):
            raise HostFileError(f"{where}: port range {item!r} is not of the form BEGIN-END")
        pair = (int(begin), int(end or begin))
        if not 0 < pair[0] <= pair[1] <= PORT_MAX:
            raise HostFileError(f"{where}: port range {pair[0]}-{pair[1]} must rise and stay within 1-{PORT_MAX}")
        ranges.append(pair)
    ranges.sort()
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            raise HostFileError(f"{where}: port ranges {before[0]}-{before[1]} and {after[0]}-{after[1]} overlap")
    return tuple(ranges)


def _attributes(where: str, value: object) -> Mapping[str, str | float]:
    if not isinstance(value, dict):
        raise HostFileError(f"{where}: attributes must be a mapping, got {_kind(value)}")
    for key, item in value.items():
        if not isinstance(key, str) or isinstance(item, bool) or not isinstance(item, (str, int, float)):
            raise HostFileError(f"{where}: attribute {key!r} must be a text or a number, got {item!r}")
    return MappingProxyType({key: item if isinstance(item, str) else float(item) for key, item in value.items()})


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"

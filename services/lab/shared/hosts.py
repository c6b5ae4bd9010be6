"""The hosts of an emulated cluster: their resources, the defaults, and the YAML file that overrides them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from services.lab.shared.role_names import role_fault
from services.lab.shared.yaml_rows import PORT_MAX, FileFault, Row, is_number, port_range, read_yaml

DEFAULT_PORTS = range(31000, 32001)
"""The ports divided among hosts that name none: their tasks are processes of one machine, so no two may share a
port."""
MAX_HOSTS = 200_000
AMOUNT_MAX = 1e12
"""Limit of the amount of one resource of a host."""

_FIELDS = "name, cpus, mem, disk, gpus, revocable_cpus, ports, attributes, role, mounts, extended"
_NO_ATTRIBUTES: Mapping[str, str | float] = MappingProxyType({})


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
    # None: the measured slack.
    revocable_cpus: float | None = None
    # The role of Mesos for which the whole host is reserved, as by an agent's --default_role; empty: unreserved.
    role: str = ""
    # MOUNT disks besides `disk`, in MB: each is taken whole or not at all.
    mounts: tuple[float, ...] = ()
    # Amounts of extended resources by name.
    extended: tuple[tuple[str, int], ...] = ()
    # The class of a simulated host; empty when there are none.
    group: str = ""


def default_hosts(prefix: str = "", among: range = DEFAULT_PORTS) -> tuple[HostSpec, ...]:
    """Return the three default hosts."""
    shares = divide_ports(3, among=among)
    return tuple(HostSpec(name=f"{prefix}agent{index}", ports=ports) for index, ports in enumerate(shares))


def divide_ports(
    count: int, taken: Iterable[tuple[int, int]] = (), among: range = DEFAULT_PORTS
) -> list[tuple[tuple[int, int], ...]]:
    """Divide the ports ``among`` these that are not ``taken`` into equal shares for ``count`` hosts.

    When there are more hosts than ports, some have none.
    """
    named = {port for begin, end in taken for port in range(begin, end + 1)}
    free = [port for port in among if port not in named]
    share = len(free) // max(count, 1) or 1
    return [_ranges(free[index * share : (index + 1) * share]) for index in range(count)]


def _ranges(ports: list[int]) -> tuple[tuple[int, int], ...]:
    """Return rising ports as inclusive ranges."""
    starts = [port for before, port in pairwise([0, *ports]) if port != before + 1]
    ends = [port for port, after in pairwise([*ports, 0]) if after != port + 1]
    return tuple(zip(starts, ends, strict=True))


def make_simulated_hosts(count: int, prefix: str = "") -> tuple[HostSpec, ...]:
    """Return `count` equal hosts sim-00000, sim-00001, ... for the simulate mode."""
    if not 0 < count <= MAX_HOSTS:
        raise ValueError(f"the number of simulated hosts must be between 1 and {MAX_HOSTS}, got {count}")
    return tuple(HostSpec(name=f"{prefix}sim-{index:05d}") for index in range(count))


def load_hosts(path: Path, among: range = DEFAULT_PORTS) -> tuple[HostSpec, ...]:
    """Read a YAML list of hosts, such as `[{name: a, cpus: 8, ports: [31000-31999]}]`. Raises FileFault."""
    rows = read_yaml(path)
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_HOSTS:
        found = f"{len(rows)} entries" if isinstance(rows, list) else repr(rows)
        raise FileFault(f"{path}: expected a list of 1 to {MAX_HOSTS} hosts, got {found}")
    hosts = [_host(path, index, row) for index, row in enumerate(rows)]
    seen: dict[str, int] = {}
    for index, host in enumerate(hosts):
        if host.name in seen:
            raise FileFault(f"{path}: host {host.name!r}: name is used by entries {seen[host.name]} and {index}")
        seen[host.name] = index
    without = [index for index, row in enumerate(rows) if "ports" not in row]
    taken = [ports for index, host in enumerate(hosts) if index not in without for ports in host.ports]
    for index, ports in zip(without, divide_ports(len(without), taken, among), strict=True):
        hosts[index] = replace(hosts[index], ports=ports)
    return tuple(hosts)


def _host(path: Path, index: int, value: object) -> HostSpec:
    if not isinstance(value, dict):
        raise FileFault(f"{path}: entry {index}: expected a mapping, got {value!r}")
    name = value.get("name")
    if not isinstance(name, str) or not name or "/" in name or name != name.strip():
        raise FileFault(f"{path}: entry {index}: name must be a non-empty text without '/', got {name!r}")
    row = Row(f"{path}: host {name!r}", value, _FIELDS, ": ")
    usual = HostSpec(name)
    return HostSpec(
        name,
        *size_of(row, usual),
        ports=_ports(row) if "ports" in row else usual.ports,
        attributes=_attributes(row),
        revocable_cpus=row.number("revocable_cpus", 0.0, 0.0, AMOUNT_MAX) if "revocable_cpus" in row else None,
        role=_role(row),
        mounts=_mounts(row),
        extended=_read_extended(row),
    )


def size_of(row: Row, usual: HostSpec) -> tuple[float, float, float, int]:
    """Return its cpus, mem, disk and gpus."""
    cpus, mem, disk = (row.number(key, getattr(usual, key), 0.0, AMOUNT_MAX) for key in ("cpus", "mem", "disk"))
    return cpus, mem, disk, int(row.number("gpus", usual.gpus, 0.0, AMOUNT_MAX, is_whole=True))


def _role(row: Row) -> str:
    """Return the role, empty for `*`."""
    role = row.text("role", "*")
    if (fault := role_fault(role)) is not None:
        raise FileFault(f"{row.at('role')}: {fault}")
    return "" if role == "*" else role


def _mounts(row: Row) -> tuple[float, ...]:
    sizes: Any = row.get("mounts") if "mounts" in row else []
    if not isinstance(sizes, list) or not all(is_number(size) and 0 < size <= AMOUNT_MAX for size in sizes):
        raise row.fault("mounts", f"a list of sizes in MB above 0, up to {AMOUNT_MAX:g}")
    return tuple(float(size) for size in sizes)


def _read_extended(row: Row) -> tuple[tuple[str, int], ...]:
    values = row.mapping("extended")
    for name, amount in values.items():
        if not isinstance(amount, int) or not 0 < amount <= AMOUNT_MAX:
            raise FileFault(f"{row.at('extended')}.{name}: must be a whole number above 0, got {amount!r}")
    return tuple(sorted(values.items()))


def _ports(row: Row) -> tuple[tuple[int, int], ...]:
    value: Any = row.get("ports")
    found = [port_range(str(item)) for item in value] if isinstance(value, list) else [None]
    ranges = sorted(pair for pair in found if pair is not None)
    if len(ranges) < len(found):
        raise row.fault("ports", f"a list of ranges BEGIN-END that rise within 1-{PORT_MAX}")
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            raise FileFault(f"{row.at('ports')}: {before[0]}-{before[1]} and {after[0]}-{after[1]} overlap")
    return tuple(ranges)


def _attributes(row: Row) -> Mapping[str, str | float]:
    values = row.mapping("attributes")
    for key, value in values.items():
        if not isinstance(value, str) and not is_number(value):
            raise FileFault(f"{row.at('attributes')}.{key}: must be a text or a number, got {value!r}")
    shown = {key: value if isinstance(value, str) else float(value) for key, value in values.items()}
    return MappingProxyType(shown) if shown else _NO_ATTRIBUTES

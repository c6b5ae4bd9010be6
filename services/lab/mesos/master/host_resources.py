"""Resources that the agent of a host reports to its master."""

from __future__ import annotations

from services.lab.mesos.resources import (
    CPUS,
    DISK,
    GPUS,
    MEM,
    PORTS,
    REVOCABLE_CPUS,
    THOUSAND,
    Kind,
    Resources,
    kind_of,
)
from services.lab.shared.hosts import HostSpec

_TOTALS: dict[tuple[object, ...], Resources] = {}


def total_of(spec: HostSpec) -> Resources:
    """Return the reported resources; equal hosts share one dict."""
    key = (
        spec.cpus,
        spec.mem,
        spec.disk,
        spec.gpus,
        spec.ports,
        spec.revocable_cpus,
        spec.role,
        spec.mounts,
        spec.extended,
    )
    total = _TOTALS.get(key)
    if total is None:
        total = {}
        mounts = ((mount_disk(index), size) for index, size in enumerate(spec.mounts))
        rows = ((CPUS, spec.cpus), (GPUS, spec.gpus), (MEM, spec.mem), (DISK, spec.disk), *mounts)
        extended = ((kind_of(name), amount) for name, amount in spec.extended)
        if spec.ports:
            total[_reserve_statically(PORTS, spec.role)] = spec.ports
        for kind, value in (*rows, *extended):
            if value:
                total[_reserve_statically(kind, spec.role)] = round(value * THOUSAND)
        if spec.revocable_cpus:
            total[REVOCABLE_CPUS] = round(spec.revocable_cpus * THOUSAND)
        _TOTALS[key] = total
    return total


def mount_disk(index: int) -> Kind:
    return kind_of("disk", disk={"source": {"type": "MOUNT", "mount": {"root": f"/mnt/{index}"}}})


def _reserve_statically(kind: Kind, role: str) -> Kind:
    """Reserve a resource statically, like the agent's own flags."""
    if not role:
        return kind
    return kind_of(kind.name, kind.type, [{"type": "STATIC", "role": role}], kind.disk)

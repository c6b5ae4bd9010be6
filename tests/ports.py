"""Ports for servers that a test starts."""

from __future__ import annotations

from contextlib import closing

from services.lab.local.ports import PortReservations


def free_ports(count: int) -> list[int]:
    """Return ports without a listener that no local cluster has taken, outside the range from which the kernel assigns
    ports to outgoing connections: while a killed server is down, another process could get its port, or a client that
    tries to reach it could connect to itself.
    """
    with closing(PortReservations()) as taken:
        return taken.take_any(count)

"""Ports of local clusters: each is reserved before its use, so that two clusters that start at once do not collide."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from peloton.errors import Unavailable

OWN_PORTS = range(20_000, 23_000)
"""The range of a cluster's own ports: below the ports of outgoing connections, and outside the ports of pods."""
POD_PORTS = (range(31_000, 32_001), *(range(begin, begin + 500) for begin in range(30_500, 22_999, -500)))
"""The ranges for pods on emulated hosts: each cluster of this machine takes one, the first one that of Mesos's
defaults."""


class PortReservations:
    """The ports reserved by one cluster. Other clusters cannot take them until this is closed or its process has died.

    A name is an abstract socket: like the ports themselves it belongs to a network namespace and is visible to all of
    its users, and the kernel frees it with the process that holds it.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __del__(self) -> None:
        self.close()  # the cluster may never have started

    def close(self) -> None:
        while self._held:
            self._held.pop().close()

    def take(self, port: int) -> bool:
        """Take a port; return False when another cluster has taken it or a process listens there."""
        return is_free(port) and self._take(f"port/{port}")

    def take_any(self, count: int) -> list[int]:
        """Take ``count`` free ports of OWN_PORTS. Raises Unavailable."""
        found: list[int] = []
        for port in random.sample(OWN_PORTS, len(OWN_PORTS)):
            if len(found) == count:
                break
            if self.take(port):
                found.append(port)
        if len(found) < count:
            raise Unavailable(f"no {count} free ports between {OWN_PORTS.start} and {OWN_PORTS.stop - 1}")
        return found

    def pod_ports(self, ranges: Iterable[range] = POD_PORTS) -> range:
        """Take one of the ranges for the pods of this cluster. Raises Unavailable."""
        tried = 0
        for ports in ranges:
            if self._take(f"pods/{ports.start}"):
                return ports
            tried += 1
        raise Unavailable(f"all {tried} ranges of ports for pods are taken by other local clusters of this machine")

    def _take(self, name: str) -> bool:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(f"\0peloton/{name}")
        except OSError:
            sock.close()
            return False
        self._held.append(sock)
        return True


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

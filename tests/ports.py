"""Ports for servers that a test starts."""

from __future__ import annotations

import random

from services.lab.local.ports import OWN_PORTS, is_free

PORTS_TRIED = 50


def free_ports(count: int) -> list[int]:
    """Return ports without a listener, outside the range from which the kernel assigns ports to outgoing connections:
    while a killed server is down, another process could get its port, or a client that tries to reach it could connect
    to itself.
    """
    found = [port for port in random.sample(OWN_PORTS, PORTS_TRIED) if is_free(port)]
    if len(found) < count:
        raise AssertionError(f"no {count} free ports between {OWN_PORTS.start} and {OWN_PORTS.stop - 1}")
    return found[:count]

"""Local clusters of one machine do not share ports."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from peloton.errors import Unavailable
from services.lab.local.ports import OWN_PORTS, POD_PORTS, PortReservations
from tests.ports import free_ports

HOLD = """
import sys
from services.lab.local.ports import PortReservations
taken = PortReservations()
print(taken.take_any(1)[0], flush=True)
sys.stdin.read()
"""


@contextmanager
def two() -> Iterator[tuple[PortReservations, PortReservations]]:
    one, other = PortReservations(), PortReservations()
    try:
        yield one, other
    finally:
        one.close()
        other.close()


def test_what_one_has_taken_another_does_not_get() -> None:
    """A port is taken before any process listens there, and until it is given back."""
    (port,) = free_ports(1)
    with two() as (one, other):
        assert (True, False) == (one.take(port), other.take(port))

        one.close()

        assert other.take(port)


def test_a_port_on_which_another_process_listens_is_not_taken() -> None:
    """A port on which another process listens is not taken, although that process is no local cluster."""
    with socket.create_server(("127.0.0.1", 0)) as server, two() as (one, _):
        assert not one.take(server.getsockname()[1])


def test_pods_of_two_clusters_have_ranges_of_their_own() -> None:
    """Two clusters have different ranges for pods; without a free range the next cluster is refused."""
    ranges = [range(9_000_000, 9_000_100), range(9_000_100, 9_000_200)]
    with two() as (one, other):
        assert ranges == [one.pod_ports(ranges), other.pod_ports(ranges)]
        with pytest.raises(Unavailable, match="all 2 ranges of ports for pods are taken by other local clusters"):
            other.pod_ports(ranges)


def test_ports_come_back_when_their_process_dies() -> None:
    """A killed process (SIGKILL) leaves no port taken."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with two() as (one, _):
            assert not one.take(port)

            process.send_signal(signal.SIGKILL)
            process.wait()

            assert one.take(port)


def test_ranges_do_not_overlap() -> None:
    """Ranges overlap neither each other nor the ports of the cluster's own processes, nor the ports of outgoing
    connections.
    """
    ranges = sorted([OWN_PORTS, *POD_PORTS], key=lambda ports: ports.start)

    assert all(before.stop <= after.start for before, after in pairwise(ranges))
    assert ranges[-1].stop <= 32_768

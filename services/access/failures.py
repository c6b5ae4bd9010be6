"""Limit on failed authentications of a peer, within bounded memory."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from peloton.errors import Reason, ResourceExhausted

PEER_CHARS_MAX = 64
PEERS_MAX = 4_096
"""Limit of peers in memory; the one that failed longest ago is removed first."""
BURST = 20
"""Failures of a peer at once; after them it may fail once in SECONDS_PER_FAILURE."""
SECONDS_PER_FAILURE = 1.0


def network_of(peer: str) -> str:
    """Return the address of a gRPC peer without its port, or the /64 network of an IPv6 address."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    return network_of_address(rest.rpartition(":")[0].strip("[]").replace("%5B", "").replace("%5D", ""))


def network_of_address(text: str) -> str:
    """Return an address, the /64 network of an IPv6 address, or the beginning of another text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text[:PEER_CHARS_MAX]
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Failures:
    """Token buckets of failures, one for each peer."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._peers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, peer: str) -> None:
        """Raise ResourceExhausted for a peer that has failed too often."""
        if peer not in self._peers:
            return
        left = self._count_left(peer)
        if left < 1.0:
            wait_s = (1.0 - left) * SECONDS_PER_FAILURE
            raise ResourceExhausted(
                f"too many failed authentications from {peer}: more than {BURST} at once, and one in "
                f"{SECONDS_PER_FAILURE:.0f} s after them; try again in {wait_s:.1f} s",
                wait_s,
            ).because(Reason.OVERLOADED, rule="failed_authentications")

    def note(self, peer: str) -> None:
        """Count a failure."""
        self._peers[peer] = max(self._count_left(peer) - 1.0, 0.0), self._clock_s()
        self._peers.move_to_end(peer)
        if len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)

    def _count_left(self, peer: str) -> float:
        left, at_s = self._peers.get(peer, (float(BURST), 0.0))
        return min(left + (self._clock_s() - at_s) / SECONDS_PER_FAILURE, float(BURST))

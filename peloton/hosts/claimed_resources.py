"""Resources that launches have claimed, and that the cluster's report of its hosts may not include yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from peloton.model.ids import Hostname
from peloton.model.resources import Resources

WORDS_UNTIL_COUNTED = 2
"""Number of reports of all hosts after the end of a launch: the first may predate it, the second does not."""


@dataclass(slots=True)
class _Claimed:
    amounts: Resources
    words: int = 0


class ClaimedResources:
    """Claimed resources of each host with a launch since the last reports."""

    def __init__(self) -> None:
        self._hosts: dict[Hostname, _Claimed] = {}

    def add(self, hostname: Hostname, claim: Resources) -> None:
        """Add the resources claimed by a launch, which may not use all of them."""
        earlier = self._hosts.get(hostname)
        self._hosts[hostname] = _Claimed(claim + earlier.amounts if earlier else claim)

    def heard(self, launching: Collection[Hostname]) -> None:
        """Handle a report of the resources held on all hosts. ``launching`` are the hosts with launches under way."""
        for hostname, claimed in list(self._hosts.items()):
            claimed.words = 0 if hostname in launching else claimed.words + 1
            if claimed.words >= WORDS_UNTIL_COUNTED:
                del self._hosts[hostname]

    def less(self, hostname: Hostname, free: Resources) -> Resources:
        """Return the free resources of a host, as reported by the cluster, less the claimed ones."""
        if hostname not in self._hosts:
            return free
        return free.without(self._hosts[hostname].amounts)

"""Room that launches have claimed and that the cluster's word about its hosts may not count yet."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.in_flight import InFlight

WORDS_UNTIL_COUNTED = 2
"""Words about all hosts after the end of a launch. The first may have been written before it, the second not."""


@dataclass(slots=True)
class _Claimed:
    amounts: Resources
    words: int = 0


class ClaimedRoom:
    """Has an entry for each host with a launch within the last words. The book of hosts holds its lock."""

    def __init__(self) -> None:
        self._hosts: dict[Hostname, _Claimed] = {}

    def add(self, hostname: Hostname, room: Resources) -> None:
        """A launch takes this room, of which it may leave a part."""
        earlier = self._hosts.get(hostname)
        self._hosts[hostname] = _Claimed(room + earlier.amounts if earlier else room)

    def heard(self, launching: InFlight[str]) -> None:
        """The cluster has said what pods hold on all hosts. ``launching``: hosts with launches under way."""
        for hostname, claimed in list(self._hosts.items()):
            claimed.words = 0 if hostname in launching else claimed.words + 1
            if claimed.words >= WORDS_UNTIL_COUNTED:
                del self._hosts[hostname]

    def less(self, hostname: Hostname, free: Resources) -> Resources:
        """Return what is free of a host, by the cluster's word, without the claimed room."""
        if hostname not in self._hosts:
            return free
        claimed = self._hosts[hostname].amounts
        return Resources(*(max(have - taken, 0) for have, taken in zip(free, claimed, strict=True)))

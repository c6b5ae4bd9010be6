"""A copy of the hosts of a fleet, to place pods on tentatively."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np

from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import LEASED, READY, STATE, HostRow


class TrialFleet(Fleet):
    """A copy in which leased resources count as free: a lease is over in a moment."""

    def __init__(self, fleet: Fleet) -> None:
        """Copy the fleet, which must not change meanwhile."""
        super().__init__()
        self._m, self.names, self.row_of = fleet._m.copy(), [*fleet.names], dict(fleet.row_of)
        self._extended = dict(fleet._extended)
        self._m[STATE, self._m[STATE] == LEASED] = READY
        self._kinds, self.loads, self._unused = fleet._kinds.copy(), deepcopy(fleet.loads), [*fleet._unused]
        self._weights, self._weights_known = fleet._weights, fleet._weights_known

    def put_hosts(self, hosts: Sequence[HostRow]) -> None:
        """Put many hosts at once."""
        if hosts:
            self._widen(hosts)
            rows = [self._row_for(host.hostname) for host in hosts]
            self._m[:, rows] = np.array([self._values(host) for host in hosts], np.int64).T
            self._weights = None

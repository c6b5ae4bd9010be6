"""Claims of host names, which are unique over all clusters: the first cluster that registers a name owns it until the
host is unregistered."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from peloton.ports import HostClaims

log = logging.getLogger(__name__)


class HostnameClaims:
    """Claims of one cluster, for one thread. Storage is asked at the first call, and about hosts that joined, left or
    were refused. The first hosts of a cluster are claimed without an event for each."""

    def __init__(self, records: HostClaims, cluster: str) -> None:
        self._records = records
        self._cluster = cluster
        self._mine: set[str] | None = None
        self._refused: dict[str, str] = {}

    def find_refused(self, registered: Collection[str]) -> Mapping[str, str]:
        """Return registered hosts whose name another cluster has, with that cluster."""
        if self._mine is None:
            self._mine = self._records.list_claimed(self._cluster)
        is_first = not self._mine
        names = set(registered)
        if gone := self._mine - names:
            self._records.disclaim(self._cluster, gone)
            self._mine -= gone
        refused: dict[str, str] = {}
        if new := names - self._mine:
            refused = self._records.claim(self._cluster, new, is_first)
            self._mine |= new - refused.keys()
        for hostname in sorted(refused.keys() - self._refused.keys()):
            log.error(
                "host %s is ignored: cluster %s has a host of that name, and names are unique over all clusters",
                hostname,
                refused[hostname],
            )
        self._refused = refused
        return refused

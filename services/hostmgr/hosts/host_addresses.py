"""Addresses of hosts, at which their pods reach each other; stored, so that the API knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.hostmgr.driver import RegisteredHost


class StoredAddresses(Protocol):
    def addresses(self, cluster: str) -> dict[str, str]: ...

    def set_addresses(self, cluster: str, addresses: Mapping[str, str]) -> None: ...


class HostAddresses:
    """Addresses of the hosts of one cluster, of which changes are stored. A new leader knows those of its predecessor:
    offers may arrive before the list of hosts. Any thread may read."""

    def __init__(self, stored: StoredAddresses, cluster: str, of_pods: str = "") -> None:
        """``of_pods``: the address of pods that have their own, instead of those of hosts."""
        self._stored, self._cluster, self._of_pods = stored, cluster, of_pods
        self._known: dict[str, str] = {}

    def load(self) -> None:
        self._known = self._stored.addresses(self._cluster)

    def set(self, hosts: Sequence[RegisteredHost]) -> None:
        """Store the addresses that are not stored yet. The names of the hosts have been claimed. For one thread."""
        now = {str(host.hostname): self._of_pods or host.ip or host.hostname for host in hosts}
        if changed := {name: address for name, address in now.items() if self._known.get(name) != address}:
            self._stored.set_addresses(self._cluster, changed)
        self._known = now

    def of(self, hostname: str) -> str:
        """Return the address of a host, its name when the cluster announces none; empty while it is not known."""
        return self._known.get(hostname, "")

"""Addresses of hosts are stored when they change."""

from __future__ import annotations

from collections.abc import Mapping

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_addresses import HostAddresses


class Table:
    def __init__(self, **rows: str) -> None:
        self.rows = dict(rows)
        self.writes: list[dict[str, str]] = []

    def addresses(self, cluster: str) -> dict[str, str]:
        return dict(self.rows)

    def set_addresses(self, cluster: str, addresses: Mapping[str, str]) -> None:
        self.writes.append(dict(addresses))
        self.rows |= addresses


def hosts(**addresses: str) -> list[RegisteredHost]:
    none = Resources()
    return [RegisteredHost(f"id-{name}", Hostname(name), ip, none, none, {}) for name, ip in addresses.items()]


def test_addresses_that_changed_are_stored() -> None:
    """A host that left and returned is written again."""
    table = Table(a="10.0.0.1", b="")
    addresses = HostAddresses(table, "west")
    addresses.load()

    for now in (hosts(a="10.0.0.1", b="10.0.0.2"), hosts(a="10.0.0.1", b="10.0.0.2"), hosts(a="10.0.0.3")):
        addresses.set(now)
    addresses.set(hosts(a="10.0.0.3", b="10.0.0.2"))

    assert [{"b": "10.0.0.2"}, {"a": "10.0.0.3"}, {"b": "10.0.0.2"}] == table.writes


def test_pods_with_addresses_of_their_own_are_reached_by_them() -> None:
    """The pattern of these addresses takes the place of the addresses of all hosts, the stored ones too."""
    table = Table(a="10.0.0.1")
    addresses = HostAddresses(table, "west", "{instance}.{job}.svc")
    addresses.load()
    addresses.set(hosts(a="10.0.0.1"))

    assert ("{instance}.{job}.svc", [{"a": "{instance}.{job}.svc"}]) == (addresses.of("a"), table.writes)


def test_a_host_without_an_address_is_reached_by_its_name() -> None:
    """A host that is not registered has no address, except a stored one before the first list of hosts."""
    addresses = HostAddresses(Table(c="10.0.0.3"), "west")
    addresses.load()
    before = [addresses.of(name) for name in "ac"]
    addresses.set(hosts(a="", b="10.0.0.2"))

    assert (["", "10.0.0.3"], "a", "10.0.0.2", "") == (before, *map(addresses.of, "abc"))

"""Leaders are found by their lease rows, and channels to them are shared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.errors import Unavailable
from services import leader
from services.leader import LeaderChannels
from tests.unit.lease_table import Table, table

__all__ = ["table"]  # a fixture

ROLE = "hostmgr"


@pytest.fixture
def channels(table: Table) -> Iterator[LeaderChannels]:
    made = LeaderChannels(table)
    yield made
    made.close()


def lead(table: Table, address: str) -> None:
    table.rows[ROLE] = ("owner", address, time.time() + 60)


def test_without_a_leader_there_is_no_channel(channels: LeaderChannels) -> None:
    """A call without a leader fails with an error that allows a retry."""
    with pytest.raises(Unavailable, match="no hostmgr leads at present"):
        channels.channel(ROLE)()


def test_a_leader_is_read_once_in_a_while(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls share a look-up, and a new leader is found when it is old."""
    lead(table, "127.0.0.1:1")
    find = channels.channel(ROLE)
    first = find()
    assert all(find() is first for _ in range(100))
    assert 1 == table.lookups

    lead(table, "127.0.0.1:2")
    assert find() is first
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    assert find() is not first


def test_a_missing_leader_is_not_remembered(table: Table, channels: LeaderChannels) -> None:
    """A look-up without a leader is not cached: a leader is found as soon as there is one."""
    assert channels.leader(ROLE) is None

    lead(table, "127.0.0.1:1")

    assert "127.0.0.1:1" == channels.leader(ROLE)


def test_channels_to_leaders_of_long_ago_are_closed(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failover brings a new address: the least recently used ones go."""
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    find = channels.channel(ROLE)
    made: list[grpc.Channel] = []
    for number in range(leader.CHANNELS_MAX + 1):
        lead(table, f"127.0.0.1:{number + 1}")
        made.append(find())

    closed: Any = made[0]
    with pytest.raises(ValueError, match="closed channel"):
        closed.unary_unary("/a/B")(b"", timeout=0.01)
    assert find() is made[-1]


def test_all_clusters_are_found_by_one_lookup(
    table: Table, channels: LeaderChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls to any cluster share one look-up; a cluster without a leader is known and has no channel."""
    for name, address, left_s in (("a", "127.0.0.1:1", 60), ("b", "127.0.0.1:2", 60), ("c", "127.0.0.1:3", -1)):
        table.rows[f"hostmgr/{name}"] = ("owner", address, time.time() + left_s)
    find_a, find_b, find_c = (channels.cluster_channel(name) for name in "abc")

    assert {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": ""} == channels.clusters()
    assert find_a() is find_a() is not find_b()
    with pytest.raises(Unavailable, match="no host manager of cluster c leads at present"):
        find_c()
    assert 1 == table.lookups

    table.rows["hostmgr/c"] = ("owner", "127.0.0.1:3", time.time() + 60)
    monkeypatch.setattr(leader, "LOOKUP_CACHE_S", -1.0)
    assert find_c() is not find_a()
